// quantize and dequantize (quantization.comp), for tensors of every layout. Codes of fewer than 8
// bits are only written to tensors without gaps, because two invocations must not write one byte.
#include <algorithm>
#include <array>
#include <string>

#include "backends/vulkan/kernels/submit.hpp"
#include "backplane/shell/quantized.hpp"

namespace bp::vulkan {
namespace {

enum QuantizationOp : uint32_t { kQuantizing = 0, kDequantizing = 1 };

constexpr int64_t kCodesOfGroup = 8;  // As in quantization.comp.

struct QuantizationRecord {
  uint64_t floats, codes, scale, zero, tensor_scale;
  uint64_t count;
  uint32_t extents[BP_MAX_RANK], blocks[BP_MAX_RANK];
  int64_t float_strides[BP_MAX_RANK], scale_strides[BP_MAX_RANK];
  int64_t code_strides[BP_MAX_RANK], zero_strides[BP_MAX_RANK];
};

struct Operands {
  const bp_tensor &floats, &codes, &scale;
  const bp_tensor *zero, *tensor_scale;
};

QuantizationRecord record_of(const Launch& launch, const Operands& o) {
  QuantizationRecord record{};
  record.floats = launch.device_address(o.floats);
  record.codes = launch.device_address(o.codes);
  record.scale = launch.device_address(o.scale);
  record.zero = address_of(launch, o.zero);
  record.tensor_scale = address_of(launch, o.tensor_scale);
  record.count = static_cast<uint64_t>(element_count(o.floats));
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  std::fill_n(record.blocks, BP_MAX_RANK, 1u);
  for (uint32_t i = 0; i < o.floats.ndim; ++i) {
    const uint32_t axis = o.floats.ndim - 1 - i;
    const BlockAxis of_scale = block_axis(o.floats, o.scale, axis);
    record.extents[i] = static_cast<uint32_t>(o.floats.shape[axis]);
    record.blocks[i] = of_scale.block;
    record.float_strides[i] = o.floats.strides[axis] * dtype_size_bytes(o.floats.dtype);
    record.code_strides[i] = o.codes.strides[axis] * dtype_size_bits(o.codes.dtype);
    record.scale_strides[i] = of_scale.stride * dtype_size_bytes(o.scale.dtype);
    if (o.zero == nullptr) continue;
    record.zero_strides[i] =
        block_axis(o.floats, *o.zero, axis).stride * dtype_size_bits(o.zero->dtype);
  }
  return record;
}

bp_status submit_quantization(Launch& launch, QuantizationOp op, const Operands& o) {
  const int64_t count = element_count(o.floats);
  if (count == 0) return BP_OK;
  if (count > int64_t{1} << 31) {
    return launch.refuse(BP_UNSUPPORTED, "quantization: a tensor has more than 2^31 elements");
  }
  const std::array<uint32_t, 7> constants = {local_size(launch),
                                             op,
                                             one_of(kF32Dtypes, o.floats.dtype),
                                             one_of(kCodeDtypes, o.codes.dtype),
                                             one_of(kScaleDtypes, o.scale.dtype),
                                             o.zero != nullptr ? 1u : 0u,
                                             std::max(o.floats.ndim, 1u)};
  const bool has_groups = op == kQuantizing && dtype_size_bits(o.codes.dtype) != 8;
  const auto invocations =
      static_cast<uint64_t>(has_groups ? (count + kCodesOfGroup - 1) / kCodesOfGroup : count);
  const bp_tensor &from = op == kQuantizing ? o.floats : o.codes,
                  &to = op == kQuantizing ? o.codes : o.floats;
  return submit(launch, kQuantizationModule, constants, record_of(launch, o),
                ceil_divide(invocations, local_size(launch)),
                {Ranges(launch, {&from, &o.scale, o.zero, o.tensor_scale}), Ranges(launch, {&to})});
}

bp_reason quantize_supports(const bp_quantize_args& args) {
  if (dtype_size_bits(args.y->dtype) == 8 || is_contiguous(*args.y)) return nullptr;
  return "y has codes of fewer than 8 bits with gaps between them";
}

bp_status quantize_launch(const bp_quantize_args& args, Launch& launch) {
  if (const bp_reason reason = quantize_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("quantize: ") + reason);
  }
  return submit_quantization(launch, kQuantizing,
                             {*args.x, *args.y, *args.scale, args.zero, args.tensor_scale});
}

bp_status dequantize_launch(const bp_dequantize_args& args, Launch& launch) {
  return submit_quantization(launch, kDequantizing,
                             {*args.y, *args.x, *args.scale, args.zero, args.tensor_scale});
}

}  // namespace

constinit const bp_kernel kQuantize =
    make_kernel<bp_quantize_args, quantize_launch, quantize_supports>(
        kernel_row("quantize", BP_OP_QUANTIZE, {kQuantizeDtypes, 3}));
constinit const bp_kernel kDequantize = make_kernel<bp_dequantize_args, dequantize_launch>(
    kernel_row("dequantize", BP_OP_DEQUANTIZE, {kDequantizeDtypes, 3}));

}  // namespace bp::vulkan
