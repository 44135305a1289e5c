#include "backends/cpu/blocked_weight.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <type_traits>

#include "backends/cpu/block_product.hpp"
#include "backends/host_kernels/inner_product.hpp"
#include "backends/host_kernels/list.hpp"
#include "backends/host_kernels/product.hpp"
#include "backplane/shell/layout_front.hpp"
#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp::cpu {
namespace {

using kernels::Env;
using kernels::Launch;
using kernels::Program;

// Blocks make oneDNN faster between these numbers of rows; product_plan.hpp has the measurements.
constexpr int64_t kFewestRows = 2, kMostRows = 512;

// The number of rows that blocks are chosen for. It is the same for all products, so that they can
// share a weight. Blocks that are chosen for few rows also serve many rows. On one processor with
// AVX2, a product of 64 rows by 4096 columns by 4096 takes 1.4 times as long with blocks for 64
// rows as with strides.
constexpr int64_t kNominalRows = 2;

// The weight of both ops is argument 1.
constexpr bp_layout_claim kBlockedWeight{.struct_size = sizeof(bp_layout_claim),
                                         .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                                         .arguments = 0b10,
                                         .kind = BP_LAYOUT_KIND_VENDOR};
constexpr bp_layout_claim kFileBlocks{.struct_size = sizeof(bp_layout_claim),
                                      .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                                      .arguments = 0b10,
                                      .kind = BP_LAYOUT_KIND_QUANTIZED};
constexpr const bp_layout_claim* kClaims[] = {&kBlockedWeight, &kFileBlocks};

// The blocks of files follow each other along the depth only in the weight of linear.
constexpr uint64_t kMatmulClaimCount = 1, kLinearClaimCount = std::size(kClaims);

// ---- What differs between the ops ---------------------------------------------------------------

const bp_tensor*& weight_of(bp_linear_args& args) { return args.weight; }
const bp_tensor*& weight_of(bp_matmul_args& args) { return args.b; }

constexpr WeightVariant variant_of(const bp_linear_args*) { return kWeightOfLinear; }
constexpr WeightVariant variant_of(const bp_matmul_args*) { return kWeightOfMatmul; }

constexpr const bp_kernel& plain_kernel(const bp_linear_args*) { return kernels::kLinear; }
constexpr const bp_kernel& plain_kernel(const bp_matmul_args*) { return kernels::kMatmul; }

struct Named {
  const char* name;
  const bp_tensor* tensor;
};
std::array<Named, 4> others_of(const bp_linear_args& args) {
  return {
      {{"x", args.x}, {"bias", args.bias}, {"y", args.y}, {"preactivation", args.preactivation}}};
}
std::array<Named, 4> others_of(const bp_matmul_args& args) {
  return {{{"a", args.a}, {"y", args.y}, {"", nullptr}, {"", nullptr}}};
}

bool has_layout(const bp_tensor* tensor) { return tensor != nullptr && tensor->layout != nullptr; }

template <typename Args>
bool has_layouts(const Args& args) {
  Args copy = args;
  return has_layout(weight_of(copy)) ||
         std::ranges::any_of(others_of(args), [](const Named& n) { return has_layout(n.tensor); });
}

// ---- One call -----------------------------------------------------------------------------------

// Reads the product of a call as if its weight were dense by strides. Returns false unless the
// product has dtype f32 and oneDNN takes it with blocks.
template <typename Args>
bool read_product(const Args& args, Product& product) {
  Args copy = args;
  const bp_tensor* const weight = weight_of(copy);
  if (weight == nullptr || weight->ndim != 2 || weight->dtype != BP_F32) return false;
  bp_tensor dense = *weight;
  const int64_t strides[2] = {weight->shape[1], 1};
  dense.strides = strides;
  dense.layout = nullptr;
  weight_of(copy) = &dense;
  product = kernels::product_of(copy);
  return kernels::is_one_dense_product(product);
}

// The weight lies in blocks of oneDNN, for which there is a program, or in those of a file.
template <typename Args>
struct BlockedCall {
  Product product;
  std::shared_ptr<const Program> program;
  const BlockFormat* format = nullptr;
  int thread_count = 1;

  uint64_t workspace_size_bytes() const {
    return format == nullptr ? program->workspace_size_bytes()
                             : block_product_workspace_bytes(product, *format, thread_count);
  }

  void run(std::byte* workspace) const {
    if (format != nullptr) {
      multiply_blocks(product, *format, workspace, thread_count);
    } else {
      void* const externals[] = {product.a.address, product.b.address, product.y.address,
                                 product.bias};
      program->run(externals, workspace);
    }
    kernels::run_activation(product, thread_count);
  }
};

bool is_in_file_blocks(const bp_tensor& weight) {
  return weight.layout != nullptr && weight.layout->kind == BP_LAYOUT_KIND_QUANTIZED;
}

// Throws StatusError of BP_UNSUPPORTED if the kernel cannot run the call with its layouts.
template <typename Args>
BlockedCall<Args> read_call(const FullInstance& i, const Args& args, const Env& env) {
  const std::string op = plain_kernel(static_cast<const Args*>(nullptr)).name;
  for (const Named& other : others_of(args)) {
    if (!has_layout(other.tensor)) continue;
    const char* const name = other.tensor->layout->name;
    throw StatusError(BP_UNSUPPORTED, op + ": argument " + other.name + " has layout \"" +
                                          (name == nullptr ? "" : name) +
                                          "\", which the kernel does not take there; allowed: "
                                          "strides");
  }
  if (const bp_reason reason = scaled_sum_reason(args)) {
    throw StatusError(BP_UNSUPPORTED, op + ": " + reason);
  }
  Args copy = args;
  const LayoutForm form = i.layouts->form_of(*weight_of(copy), op + ": the weight");
  const bool is_of_file = form.kind == BP_LAYOUT_KIND_QUANTIZED;
  const bool is_of_op = is_of_file ? std::is_same_v<Args, bp_linear_args>
                                   : form.variant == variant_of(static_cast<const Args*>(nullptr));
  if (!is_of_op) {
    throw StatusError(BP_UNSUPPORTED, op + ": the layout of the weight is one of another op");
  }
  BlockedCall<Args> call;
  if (!read_product(args, call.product)) {
    throw StatusError(BP_UNSUPPORTED,
                      op + ": with a blocked weight the others have to be dense matrices of f32");
  }
  const Product& p = call.product;
  const int thread_count = call.thread_count =
      kernels::threads_for(p.y.rows * p.y.cols * p.a.cols, env.thread_count());
  if (is_of_file) {
    call.format = find_block_format(form.variant);
    return call;
  }
  kernels::ProgramKey key;
  for (const int64_t word : {int64_t{BP_OP_LINEAR}, int64_t{thread_count}, p.a.rows, p.a.cols,
                             p.y.cols, p.a.row_stride, p.y.row_stride, int64_t{p.has_bias}}) {
    key.add(word);
  }
  call.program = env.programs().find(
      key, [&] { return kernels::make_inner_product(p, blocks_of(i, form), thread_count); });
  return call;
}

// ---- In front of the kernel ---------------------------------------------------------------------

template <typename Args>
bp_status launch_blocked(const FullInstance& i, const Args& args, Launch& launch) {
  if (launch.plan() != nullptr) {
    return launch.refuse(BP_INVALID_ARGUMENT, "launch: plans are for weights by strides");
  }
  const BlockedCall<Args> call = read_call(i, args, launch);
  check_workspace(launch.workspace_ref(), call.workspace_size_bytes(), "launch");
  return launch.submit([call, workspace = launch.workspace()] { call.run(workspace); });
}

template <typename Args>
struct BlockedTraits {
  using Instance = cpu::Instance;

  static const bp_kernel& plain_kernel(const bp_kernel&) {
    return cpu::plain_kernel(static_cast<const Args*>(nullptr));
  }

  static bool has_layouts(const bp_kernel&, const void* args) {
    return cpu::has_layouts(*static_cast<const Args*>(args));
  }

  static bp_status launch(const bp_kernel& self, const bp_launch& launch, const void* args) {
    return kernels::with_launch(&self, &launch, args, [&](Launch& context) {
      return launch_typed<Args>(self, args, context, [&](const Args& known) {
        return launch_blocked(full_instance(self.state), known, context);
      });
    });
  }

  static BlockedCall<Args> read_call(const bp_kernel& self, const void* args) {
    const FullInstance& i = full_instance(self.state);
    return cpu::read_call(i, *static_cast<const Args*>(args), Env(i));
  }

  // The program of a call is looked up in the same way as by the launch.
  static uint64_t workspace_size_bytes(const bp_kernel& self, bp_device*, bp_launch_flags,
                                       const void* args) {
    return read_call(self, args).workspace_size_bytes();
  }

  static bp_reason supports(const bp_kernel& self, bp_device* device, bp_launch_flags flags,
                            const void* args) {
    const bp_reason reason = plain_kernel(self).supports(&self, device, flags, args);
    if (reason == nullptr) read_call(self, args);
    return reason;
  }
};

template <typename Args>
std::optional<LayoutForm> find_form(const FullInstance& i, const void* frame) {
  const Args& args = *static_cast<const Args*>(frame);
  Args copy = args;
  const bp_tensor* const weight = weight_of(copy);
  Product product;
  const bool has_others =
      std::ranges::any_of(others_of(args), [](const Named& n) { return has_layout(n.tensor); });
  if (weight == nullptr || has_others || !read_product(args, product)) return std::nullopt;
  if (is_in_file_blocks(*weight)) {
    if (!std::is_same_v<Args, bp_linear_args>) return std::nullopt;
    return i.layouts->form_of(*weight, "layout.preferred: the weight");
  }
  const bool pays = product.y.rows >= kFewestRows && product.y.rows <= kMostRows;
  // A weight that is already converted stays converted, even if the conversion alone would not pay.
  if (!pays && weight->layout == nullptr) return std::nullopt;
  try {
    return blocked_form(i, *weight, variant_of(&args));
  } catch (const StatusError& e) {
    if (e.status() != BP_UNSUPPORTED) throw;
    return std::nullopt;
  }
}

uint64_t hash_of(const dnnl::memory::desc& desc) {
  uint64_t hash = desc.get_size();
  const auto add = [&](const dnnl::memory::dims& words) {
    for (const int64_t word : words) {
      hash = (hash ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 32;
    }
  };
  add(desc.get_inner_blks());
  add(desc.get_inner_idxs());
  add(desc.get_strides());
  add(desc.get_padded_dims());
  return hash;
}

dnnl::memory::desc desc_of(const FullInstance& i, const LayoutForm& form) {
  const bool is_linear = form.variant == kWeightOfLinear;
  const int64_t cols = form.shape[is_linear ? 0 : 1], depth = form.shape[is_linear ? 1 : 0];
  return i.weights->desc(cols, depth);
}

}  // namespace

dnnl::memory::desc BlockedWeights::desc(int64_t cols, int64_t depth) {
  const std::pair key(cols, depth);
  {
    const std::shared_lock lock(mutex_);
    if (const auto found = descs_.find(key); found != descs_.end()) return found->second;
  }
  Product p;
  p.a = {.dtype = BP_F32, .rows = kNominalRows, .cols = depth, .row_stride = depth};
  p.b = {.dtype = BP_F32, .rows = depth, .cols = cols, .row_stride = cols};
  p.y = {.dtype = BP_F32, .rows = kNominalRows, .cols = cols, .row_stride = cols};
  for (ProductOperand* o : {&p.a, &p.b, &p.y}) o->col_stride = 1;
  dnnl::memory::desc made;
  try {
    made = kernels::make_inner_product(p, kernels::any_weight(p.b), 1)
               ->desc(kernels::kInnerProductWeight);
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented && e.status != dnnl_invalid_arguments) throw;
    throw StatusError(BP_UNSUPPORTED, "oneDNN has no blocks for a weight of " +
                                          std::to_string(cols) + " by " + std::to_string(depth));
  }
  const std::unique_lock lock(mutex_);
  return descs_.emplace(key, made).first->second;
}

LayoutForm blocked_form(const FullInstance& i, const bp_tensor& tensor, WeightVariant variant) {
  LayoutForm form = form_like(tensor, BP_LAYOUT_KIND_VENDOR, variant);
  form.words[0] = hash_of(desc_of(i, form));
  return form;
}

dnnl::memory::desc blocks_of(const FullInstance& i, const LayoutForm& form) {
  const bool is_known = form.kind == BP_LAYOUT_KIND_VENDOR && form.dtype == BP_F32 &&
                        form.ndim == 2 && form.shape[0] > 0 && form.shape[1] > 0 &&
                        (form.variant == kWeightOfLinear || form.variant == kWeightOfMatmul);
  if (!is_known) throw StatusError(BP_INCOMPATIBLE, "the layout is none of a blocked weight");
  dnnl::memory::desc desc = desc_of(i, form);
  if (hash_of(desc) != form.words[0]) {
    throw StatusError(BP_INCOMPATIBLE, "the layout has other blocks than oneDNN has here");
  }
  return desc;
}

std::optional<LayoutForm> find_preferred_form(const FullInstance& i, const bp_kernel& kernel,
                                              const void* args) {
  if (kernel.op == BP_OP_LINEAR) return find_form<bp_linear_args>(i, args);
  if (kernel.op == BP_OP_MATMUL) return find_form<bp_matmul_args>(i, args);
  return std::nullopt;
}

void put_blocked_products(FullInstance& i) {
  for (bp_kernel& kernel : i.kernels) {
    // Only the kernels that take f32 have blocked forms.
    if (kernel.launch == kernels::kLinear.launch) {
      LayoutKernel<BlockedTraits<bp_linear_args>>::put(kernel);
      kernel.layout_claim_count = kLinearClaimCount;
    } else if (kernel.launch == kernels::kMatmul.launch) {
      LayoutKernel<BlockedTraits<bp_matmul_args>>::put(kernel);
      kernel.layout_claim_count = kMatmulClaimCount;
    }
    if (kernel.layout_claim_count != 0) kernel.layout_claims = kClaims;
  }
}

}  // namespace bp::cpu
