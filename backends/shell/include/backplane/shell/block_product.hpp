// linear and matmul whose weight lies in the blocks of a file (backplane/block_formats.def): what
// kernels claim of them, and why a kernel refuses a call.
#pragma once

#include <cstdint>

#include "backplane/layout.h"
#include "backplane/ops.h"
#include "backplane/shell/block_layout.hpp"
#include "backplane/shell/kernel_row.hpp"
#include "backplane/shell/product.hpp"

namespace bp {

// The claim of a kernel whose argument 1, the weight, may lie in blocks of any format.
inline constexpr bp_layout_claim kBlocksOfWeight{.struct_size = sizeof(bp_layout_claim),
                                                 .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                                                 .arguments = 0b10,
                                                 .kind = BP_LAYOUT_KIND_QUANTIZED};
inline constexpr const bp_layout_claim* kWeightInBlocks[] = {&kBlocksOfWeight};

// The claimed dtypes of x, weight and y. A weight in blocks has dtype f32.
inline constexpr bp_dtype kBlockProductDtypes[] = {
    BP_F32, BP_F32,  BP_F32, BP_F16,  BP_F32,  BP_F16, BP_F16, BP_F32,
    BP_F32, BP_BF16, BP_F32, BP_BF16, BP_BF16, BP_F32, BP_F32,
};

// Returns the row of such a kernel. It has no plans, because the arguments of a launch with a plan
// lie by strides.
constexpr bp_kernel block_product_row(const char* name, uint32_t op) {
  bp_kernel row = kernel_row(name, op, {kBlockProductDtypes, 3});
  row.layout_claims = kWeightInBlocks;
  row.layout_claim_count = 1;
  return row;
}

// The operands of both ops. `n` and `k` are the axes of the weight's columns and depth.
struct BlockProduct {
  const bp_tensor &x, &weight, &y;
  const bp_tensor* bias;
  uint32_t activation;
  uint32_t n, k;
};

inline BlockProduct block_product_of(const bp_linear_args& args) {
  return {*args.x, *args.weight, *args.y, args.bias, args.activation, 0, 1};
}
inline BlockProduct block_product_of(const bp_matmul_args& args) {
  return {*args.a, *args.b, *args.y, nullptr, BP_LINEAR_ACTIVATION_NONE, 1, 0};
}

inline bp_reason own_block_reason(const bp_linear_args& args) {
  if (args.activation < BP_LINEAR_ACTIVATION_NONE || args.activation > BP_LINEAR_ACTIVATION_SILU) {
    return "the activation is not known";
  }
  return args.preactivation != nullptr ? "there is a preactivation" : nullptr;
}
inline bp_reason own_block_reason(const bp_matmul_args& args) {
  return args.b->ndim != 2 ? "b in blocks is not one matrix" : nullptr;
}

// Returns why such a kernel does not take the call, or NULL. `format` is that of the weight, or
// NULL if the weight is not in blocks of this backend.
template <typename Args>
bp_reason block_product_reason(const Args& args, const BlockFormat* format) {
  if (const bp_reason reason = own_block_reason(args)) return reason;
  if (const bp_reason reason = scaled_sum_reason(args)) return reason;
  const BlockProduct p = block_product_of(args);
  const bool has_others = p.x.layout != nullptr || p.y.layout != nullptr ||
                          (p.bias != nullptr && p.bias->layout != nullptr);
  if (has_others) return "only the weight may have a layout";
  return format == nullptr ? "the weight is not in the blocks of a format" : nullptr;
}

}  // namespace bp
