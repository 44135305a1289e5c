#include "backends/cuda/kernels/product_library.hpp"

#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp::cuda {
namespace {

constexpr uint64_t kBiasAlignment = 16;

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

// Returns whether y would be rounded twice if the library wrote it. An activation reads rounded
// sums then; only relu gives the same. And with bf16 factors whose rows do not begin at multiples
// of 16 bytes, cuBLASLt adds the bias to rounded sums (seen with cuBLASLt 13.0 on an H200).
bool needs_wide_sums(const Product& p, bool is_aligned) {
  if (p.y.dtype != BP_F16 && p.y.dtype != BP_BF16) return false;
  if (p.activation != BP_LINEAR_ACTIVATION_NONE && p.activation != BP_LINEAR_ACTIVATION_RELU) {
    return true;
  }
  const auto has_aligned_rows = [](const ProductOperand& o) {
    const int64_t stride = o.col_stride == 1 ? o.row_stride : o.col_stride;
    return stride * dtype_size_bytes(o.dtype) % static_cast<int64_t>(kBiasAlignment) == 0;
  };
  return p.has_bias && !(is_aligned && has_aligned_rows(p.a) && has_aligned_rows(p.b));
}

// Returns the product alone, into dense sums in f32 at `sums`.
Product wide_product(const Product& product, std::byte* sums) {
  Product p = product;
  p.has_bias = p.has_preactivation = false;
  p.activation = BP_LINEAR_ACTIVATION_NONE;
  p.y.address = sums;
  p.y.dtype = BP_F32;
  p.y.col_stride = 1;
  p.y.row_stride = p.y.cols;
  int64_t stride = p.y.rows * p.y.cols;
  for (uint32_t i = p.batch_ndim; i-- > 0; stride *= p.batch[i]) p.y.batch_strides[i] = stride;
  return p;
}

}  // namespace

ChosenProduct choose_product(const Product& product, bool allows_tf32, bool is_aligned,
                             const Env& env) {
  LtEngine* const engine = env.engines().lt(env.device());
  if (engine == nullptr) refuse(BP_UNSUPPORTED, "cuBLASLt is missing");
  const bool is_wide = needs_wide_sums(product, is_aligned);
  const LibraryProduct shape =
      library_product(is_wide ? wide_product(product, nullptr) : product, allows_tf32, is_aligned);
  return {engine->find(shape.problem), shape.is_by_columns, shape.loop_ndim, is_wide};
}

uint64_t workspace_of(const Product& product, const ChosenProduct& chosen) {
  if (chosen.plan == nullptr) return 0;
  if (chosen.has_wide_sums) {
    const int64_t count = product.batch_count() * product.y.rows * product.y.cols;
    return rounded_part(chosen.plan->workspace_size_bytes) +
           static_cast<uint64_t>(count) * sizeof(float);
  }
  const uint64_t bias = static_cast<uint64_t>(product.y.cols) *
                        static_cast<uint64_t>(dtype_size_bytes(product.y.dtype));
  return rounded_part(chosen.plan->workspace_size_bytes) + (product.has_bias ? bias : 0);
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

bp_status run_library_product(const Product& product, const ChosenProduct& chosen,
                              const LtAddresses& places, Launch& launch) {
  LtEngine& engine = *launch.engines().lt(launch.device());
  const ProductOperand& sums = product.has_preactivation ? product.preactivation : product.y;
  return launch.call([&]() -> bp_status {
    LtAddresses at = places;
    for_each_batch(product, sums, chosen.loop_ndim, [&](int64_t a, int64_t b, int64_t y) {
      at.a = chosen.is_by_columns ? product.a.address + a : product.b.address + b;
      at.b = chosen.is_by_columns ? product.b.address + b : product.a.address + a;
      at.d = sums.address + y;
      engine.run(*chosen.plan, at, launch.stream());
    });
    return BP_OK;
  });
}

bp_status launch_product(const Product& product, const ChosenProduct& chosen, Launch& launch) {
  check_workspace(launch.workspace_ref(), workspace_of(product, chosen), "launch");
  LtAddresses at;
  at.workspace = launch.workspace();
  if (chosen.has_wide_sums) {
    const Product wide =
        wide_product(product, launch.workspace() + rounded_part(chosen.plan->workspace_size_bytes));
    const bp_status status = run_library_product(wide, chosen, at, launch);
    return status == BP_OK ? launch_rounding(product, wide.y, launch) : status;
  }
  at.bias = product.bias;
  if (needs_bias_copy(product)) {
    std::byte* const dense = launch.workspace() + rounded_part(chosen.plan->workspace_size_bytes);
    const bp_status status = launch_bias_copy(product, dense, launch);
    if (status != BP_OK) return status;
    at.bias = dense;
  }
  const bp_status status = run_library_product(product, chosen, at, launch);
  return status == BP_OK ? launch_activation(product, launch) : status;
}

}  // namespace bp::cuda
