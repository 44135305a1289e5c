// quantize and dequantize, for tensors of every layout. A thread takes the codes that fill whole
// bytes: 8 codes of fewer than 8 bits that are written, and one code otherwise. Codes of fewer than
// 8 bits are only written to tensors without gaps, because two threads must not write one byte.
//
// The limit is memory; each element is read and written once.
#include <algorithm>
#include <string>

#include "backends/cuda/kernels/codes.cuh"
#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/mixed.cuh"
#include "backplane/shell/quantized.hpp"

namespace bp::cuda {
namespace {

constexpr int kCodesOfGroup = 8;

// The elements in row-major order, the innermost axis first. Codes and zero points lie at bits.
struct CodePlan {
  std::byte *floats = nullptr, *codes = nullptr;
  const std::byte *scale = nullptr, *zero = nullptr;
  const float* tensor_scale = nullptr;
  MixedKind kind = MixedKind::kWide;
  uint32_t code_dtype = 0, scale_dtype = 0;
  uint32_t count = 0;
  int rank = 1;
  Divider extents[kMaxRank];
  Divider blocks[kMaxRank];  // The elements along each axis that share a scale.
  int64_t float_strides[kMaxRank] = {}, scale_strides[kMaxRank] = {};
  int64_t code_strides[kMaxRank] = {}, zero_strides[kMaxRank] = {};
};

// Where an element and its block lie.
struct CodePlace {
  int64_t number = 0, scale = 0;  // Elements.
  int64_t code = 0, zero = 0;     // Bits.
};

__device__ __forceinline__ CodePlace place_of(const CodePlan& plan, uint32_t element) {
  CodePlace place;
  BP_UNROLL
  for (int axis = 0; axis < kMaxRank; ++axis) {
    if (axis == plan.rank) break;
    const uint32_t next = plan.extents[axis].divide(element);
    const uint32_t i = element - next * plan.extents[axis].divisor();
    const uint32_t block = plan.blocks[axis].divide(i);
    element = next;
    place.number += i * plan.float_strides[axis];
    place.code += i * plan.code_strides[axis];
    place.scale += block * plan.scale_strides[axis];
    place.zero += block * plan.zero_strides[axis];
  }
  return place;
}

__device__ __forceinline__ float zero_of(const CodePlan& plan, const CodePlace& place) {
  if (plan.zero == nullptr) return 0;
  const uint32_t code = load_code(bits_of_code(plan.code_dtype), plan.zero, place.zero);
  return number_of_code(plan.code_dtype, code);
}

__device__ __forceinline__ uint32_t quantized(const CodePlan& plan, const CodePlace& place) {
  const float x = load_as<float>(plan.floats, plan.kind, place.number);
  const float quotient =
      x / load_scale(plan.scale_dtype, plan.scale, place.scale, plan.tensor_scale);
  if (!is_integer_code(plan.code_dtype)) return code_of_float(plan.code_dtype, quotient);
  return code_of_integer(plan.code_dtype, quotient, zero_of(plan, place));
}

__global__ void __launch_bounds__(kBlockThreads) quantize_bytes_kernel(CodePlan plan) {
  const uint32_t i = blockIdx.x * kBlockThreads + threadIdx.x;
  if (i >= plan.count) return;
  const CodePlace place = place_of(plan, i);
  plan.codes[place.code >> 3] = static_cast<std::byte>(quantized(plan, place));
}

// Writes the codes of a group without gaps. The bits behind the last code keep their value.
__global__ void __launch_bounds__(kBlockThreads) quantize_groups_kernel(CodePlan plan) {
  const uint32_t first = (blockIdx.x * kBlockThreads + threadIdx.x) * kCodesOfGroup;
  if (first >= plan.count) return;
  const uint32_t count = plan.count - first < kCodesOfGroup ? plan.count - first : kCodesOfGroup;
  const uint32_t bits = bits_of_code(plan.code_dtype);
  uint64_t word = 0;
  for (uint32_t i = 0; i < count; ++i) {
    word |= uint64_t{quantized(plan, place_of(plan, first + i))} << (i * bits);
  }
  std::byte* const to = plan.codes + (int64_t{first} * bits >> 3);
  for (uint32_t byte = 0; 8 * byte < count * bits; ++byte) {
    uint32_t value = static_cast<uint32_t>(word >> (8 * byte)) & 0xffu;
    const uint32_t left = count * bits - 8 * byte;
    if (left < 8) value |= static_cast<uint32_t>(to[byte]) >> left << left;
    to[byte] = static_cast<std::byte>(value);
  }
}

__global__ void __launch_bounds__(kBlockThreads) dequantize_kernel(CodePlan plan) {
  const uint32_t i = blockIdx.x * kBlockThreads + threadIdx.x;
  if (i >= plan.count) return;
  const CodePlace place = place_of(plan, i);
  const uint32_t code = load_code(bits_of_code(plan.code_dtype), plan.codes, place.code);
  const float difference = number_of_code(plan.code_dtype, code) - zero_of(plan, place);
  const float scale = load_scale(plan.scale_dtype, plan.scale, place.scale, plan.tensor_scale);
  store_as<float>(plan.floats, plan.kind, place.number, product_of(difference, scale));
}

struct Operands {
  const bp_tensor &floats, &codes, &scale;
  const bp_tensor *zero, *tensor_scale;
};

CodePlan plan_of(const Operands& o) {
  CodePlan plan;
  plan.floats = data<std::byte>(o.floats);
  plan.codes = data<std::byte>(o.codes);
  plan.scale = data<const std::byte>(o.scale);
  if (o.zero != nullptr) plan.zero = data<const std::byte>(*o.zero);
  if (o.tensor_scale != nullptr) plan.tensor_scale = data<const float>(*o.tensor_scale);
  plan.kind = mixed_kind<float>(o.floats.dtype);
  plan.code_dtype = one_of(kCodeDtypes, o.codes.dtype);
  plan.scale_dtype = one_of(kScaleDtypes, o.scale.dtype);
  plan.count = static_cast<uint32_t>(element_count(o.floats));
  plan.rank = static_cast<int>(std::max(o.floats.ndim, 1u));
  const int64_t code_bits = dtype_size_bits(o.codes.dtype);
  for (uint32_t i = 0; i < o.floats.ndim; ++i) {
    const uint32_t axis = o.floats.ndim - 1 - i;
    const BlockAxis of_scale = block_axis(o.floats, o.scale, axis);
    plan.extents[i] = Divider(static_cast<uint32_t>(o.floats.shape[axis]));
    plan.blocks[i] = Divider(of_scale.block);
    plan.float_strides[i] = o.floats.strides[axis];
    plan.code_strides[i] = o.codes.strides[axis] * code_bits;
    plan.scale_strides[i] = of_scale.stride;
    if (o.zero == nullptr) continue;
    plan.zero_strides[i] = block_axis(o.floats, *o.zero, axis).stride * code_bits;
  }
  return plan;
}

bp_reason size_reason(const bp_tensor& x) {
  return element_count(x) > INT32_MAX ? "a tensor has more than 2^31 - 1 elements" : nullptr;
}

bp_reason quantize_supports(const bp_quantize_args& args) {
  const bool has_gaps = dtype_size_bits(args.y->dtype) != 8 && !is_contiguous(*args.y);
  if (has_gaps) return "y has codes of fewer than 8 bits with gaps between them";
  return size_reason(*args.x);
}

bp_status quantize_launch(const bp_quantize_args& args, Launch& launch) {
  if (const bp_reason reason = quantize_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("quantize: ") + reason);
  }
  if (element_count(*args.x) == 0) return BP_OK;
  const CodePlan plan = plan_of({*args.x, *args.y, *args.scale, args.zero, args.tensor_scale});
  if (dtype_size_bits(args.y->dtype) == 8) {
    return run<quantize_bytes_kernel>(launch, blocks_for(plan.count, kBlockThreads), kBlockThreads,
                                      0, plan);
  }
  return run<quantize_groups_kernel>(launch,
                                     blocks_for(plan.count, int64_t{kBlockThreads} * kCodesOfGroup),
                                     kBlockThreads, 0, plan);
}

bp_reason dequantize_supports(const bp_dequantize_args& args) { return size_reason(*args.x); }

bp_status dequantize_launch(const bp_dequantize_args& args, Launch& launch) {
  if (const bp_reason reason = dequantize_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("dequantize: ") + reason);
  }
  if (element_count(*args.y) == 0) return BP_OK;
  const CodePlan plan = plan_of({*args.y, *args.x, *args.scale, args.zero, args.tensor_scale});
  return run<dequantize_kernel>(launch, blocks_for(plan.count, kBlockThreads), kBlockThreads, 0,
                                plan);
}

}  // namespace

constinit const bp_kernel kQuantize =
    make_kernel<bp_quantize_args, quantize_launch, quantize_supports>(
        kernel_row("quantize", BP_OP_QUANTIZE, {kQuantizeDtypes, 3}));
constinit const bp_kernel kDequantize =
    make_kernel<bp_dequantize_args, dequantize_launch, dequantize_supports>(
        kernel_row("dequantize", BP_OP_DEQUANTIZE, {kDequantizeDtypes, 3}));

}  // namespace bp::cuda
