#include "backends/cuda/kernels/product_library.hpp"

#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp::cuda {
namespace {

constexpr uint64_t kBlockBytes = 256;  // The alignment of places in the workspace.
constexpr uint64_t kBiasAlignment = 16;

uint64_t round_up(uint64_t size_bytes) {
  return (size_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

// Calls fn(a, b, y), the byte offsets of the matrices of each index of the axes that are looped
// over.
template <typename Fn>
void for_each_batch(const Product& p, const ProductOperand& sums, uint32_t axes, Fn&& fn) {
  int64_t count = 1;
  for (uint32_t i = 0; i < axes; ++i) count *= p.batch[i];
  for (int64_t index = 0; index < count; ++index) {
    int64_t a = 0, b = 0, y = 0, rest = index;
    for (uint32_t i = axes; i-- > 0; rest /= p.batch[i]) {
      const int64_t at = rest % p.batch[i];
      a += at * p.a.batch_strides[i];
      b += at * p.b.batch_strides[i];
      y += at * sums.batch_strides[i];
    }
    fn(a * dtype_size_bytes(p.a.dtype), b * dtype_size_bytes(p.b.dtype),
       y * dtype_size_bytes(p.y.dtype));
  }
}

bool needs_bias_copy(const Product& p) {
  return p.has_bias && ((p.bias_stride != 1 && p.y.cols != 1) ||
                        reinterpret_cast<uint64_t>(p.bias) % kBiasAlignment != 0);
}

}  // namespace

ChosenProduct choose_product(const Product& product, bool allows_tf32, bool is_aligned,
                             const Env& env) {
  LtEngine* const engine = env.engines().lt(env.device());
  if (engine == nullptr) refuse(BP_UNSUPPORTED, "cuBLASLt is missing");
  const LibraryProduct shape = library_product(product, allows_tf32, is_aligned);
  return {engine->find(shape.problem), shape.is_by_columns, shape.loop_ndim};
}

uint64_t workspace_of(const Product& product, const ChosenProduct& chosen) {
  if (chosen.plan == nullptr) return 0;
  const uint64_t bias = static_cast<uint64_t>(product.y.cols) *
                        static_cast<uint64_t>(dtype_size_bytes(product.y.dtype));
  return round_up(chosen.plan->workspace_size_bytes) + (product.has_bias ? bias : 0);
}

bp_reason supports_product(const Product& product, bool allows_tf32, bp_launch_flags flags,
                           const Env& env) {
  if (allows_tf32 && !env.options().allows_tf32) return "option tf32 is not \"yes\"";
  if (allows_tf32 && (flags & BP_LAUNCH_STRICT_F32) != 0) return "the launch forbids TF32";
  if (const bp_reason reason = refuse_library_product(product)) return reason;
  if (env.engines().lt(env.device()) == nullptr) return "cuBLASLt is missing; the log says why";
  const ChosenProduct chosen = choose_product(product, allows_tf32, is_aligned(product), env);
  return chosen.plan == nullptr ? "cuBLASLt has no algorithm for this shape" : nullptr;
}

bp_status launch_product(const Product& product, const ChosenProduct& chosen, Launch& launch) {
  check_workspace(launch.workspace_ref(), workspace_of(product, chosen), "launch");
  LtAddresses at;
  at.workspace = launch.workspace();
  at.bias = product.bias;
  if (needs_bias_copy(product)) {
    std::byte* const dense = launch.workspace() + round_up(chosen.plan->workspace_size_bytes);
    const bp_status status = launch_bias_copy(product, dense, launch);
    if (status != BP_OK) return status;
    at.bias = dense;
  }
  LtEngine& engine = *launch.engines().lt(launch.device());
  const ProductOperand& sums = product.has_preactivation ? product.preactivation : product.y;
  const bp_status status = launch.call([&]() -> bp_status {
    for_each_batch(product, sums, chosen.loop_ndim, [&](int64_t a, int64_t b, int64_t y) {
      at.a = chosen.is_by_columns ? product.a.address + a : product.b.address + b;
      at.b = chosen.is_by_columns ? product.b.address + b : product.a.address + a;
      at.d = sums.address + y;
      engine.run(*chosen.plan, at, launch.stream());
    });
    return BP_OK;
  });
  return status == BP_OK ? launch_activation(product, launch) : status;
}

}  // namespace bp::cuda
