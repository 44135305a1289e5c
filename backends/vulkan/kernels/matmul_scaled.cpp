// Products whose weight consists of codes (matmul_scaled.comp): matmul_scaled, and linear and
// matmul with a weight in the blocks of a file. Elements are decoded where they are used, so that
// the product needs no workspace and reads as many bytes as the codes have.
#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "backends/vulkan/kernels/blocks.hpp"
#include "backends/vulkan/kernels/product.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"
#include "backplane/shell/block_product.hpp"
#include "backplane/shell/quantized.hpp"

namespace bp::vulkan {
namespace {

constexpr int64_t kTileEdge = 64;       // As in matmul_tile.glsl.
constexpr int64_t kColumnsOfGroup = 8;  // As in matmul_rows.glsl, which takes up to kFewRows rows.
constexpr uint32_t kFewRows = 8;

struct ScaledRecord {
  uint64_t a, b, y, bias;
  uint64_t a_scale, b_scale, b_zero;
  uint64_t a_zero, a_tensor_scale, b_tensor_scale;
  uint32_t rows, cols, depth, reserved;
  uint32_t extents[BP_MAX_RANK], blocks[BP_MAX_RANK];
  int64_t a_rows[BP_MAX_RANK];
  int64_t y_rows[BP_MAX_RANK], a_scale_rows[BP_MAX_RANK];
  int64_t a_zero_rows[BP_MAX_RANK], a_zero_k;
  int64_t a_k, b_n, b_k, b_zero_n, b_zero_k;
  int64_t y_n, bias_n, a_scale_k, b_scale_n, b_scale_k;
};

// The specialisation constants, in their order.
struct ScaledConstants {
  uint32_t local_size = 256;
  uint32_t a_type = BP_F32, b_type = BP_I8, y_type = BP_F32;
  uint32_t a_scale_type = 0, b_scale_type = 0;
  uint32_t has_zero = 0, format = 0;
  uint32_t rank = 1;
  uint32_t a_block = 0, b_block = 0, b_rows_of_block = 0;
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE, has_bias = 0;
  uint32_t few_rows = 0;
};
static_assert(sizeof(ScaledConstants) == 15 * sizeof(uint32_t));

// The axes of a before its last one are the rows of the product. They are merged where a, y and the
// scales of a allow it. The zero points of a lie in the same blocks as its scales.
void put_rows(const bp_tensor& a, const bp_tensor& y, const bp_tensor* a_scale,
              const bp_tensor* a_zero, ScaledRecord& record, ScaledConstants& constants) {
  const uint32_t ndim = a.ndim - 1;
  std::array<int64_t, BP_MAX_RANK> scale_strides{}, zero_strides{};
  bool may_merge = true;
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  std::fill_n(record.blocks, BP_MAX_RANK, 1u);
  for (uint32_t axis = 0; axis < ndim && a_scale != nullptr; ++axis) {
    const BlockAxis of_scale = block_axis(a, *a_scale, axis);
    scale_strides[axis] = of_scale.stride;
    record.blocks[ndim - 1 - axis] = of_scale.block;
    may_merge = may_merge && of_scale.block == 1;
    if (a_zero != nullptr) zero_strides[axis] = block_axis(a, *a_zero, axis).stride;
  }
  const int64_t scale_bytes = a_scale == nullptr ? 0 : dtype_size_bytes(a_scale->dtype);
  const WalkOperand operands[] = {{a.strides, dtype_size_bits(a.dtype)},
                                  {y.strides, dtype_size_bytes(y.dtype)},
                                  {scale_strides.data(), scale_bytes},
                                  {zero_strides.data(), dtype_size_bits(a.dtype)}};
  if (may_merge) {
    const Walk walk = make_walk(ndim, a.shape, operands);
    constants.rank = std::max(walk.rank, 1u);
    for (size_t i = 0; i < walk.rank; ++i) {
      record.extents[i] = static_cast<uint32_t>(walk.extents[i]);
      record.a_rows[i] = walk.strides[0][i];
      record.y_rows[i] = walk.strides[1][i];
      record.a_scale_rows[i] = walk.strides[2][i];
      record.a_zero_rows[i] = walk.strides[3][i];
    }
    return;
  }
  constants.rank = ndim;
  for (uint32_t i = 0; i < ndim; ++i) {
    const uint32_t axis = ndim - 1 - i;
    record.extents[i] = static_cast<uint32_t>(a.shape[axis]);
    record.a_rows[i] = operands[0].strides[axis] * operands[0].size_bytes;
    record.y_rows[i] = operands[1].strides[axis] * operands[1].size_bytes;
    record.a_scale_rows[i] = operands[2].strides[axis] * operands[2].size_bytes;
    record.a_zero_rows[i] = operands[3].strides[axis] * operands[3].size_bytes;
  }
}

// Fills what all products have: a (..., k) times a weight of `cols` columns is y (..., cols).
void put_matrices(const Launch& launch, const bp_tensor& a, const bp_tensor& weight,
                  const bp_tensor& y, ScaledRecord& record, ScaledConstants& constants) {
  const uint32_t last = a.ndim - 1;
  record.a = launch.device_address(a);
  record.b = address_of(launch, &weight);
  record.y = launch.device_address(y);
  record.depth = static_cast<uint32_t>(a.shape[last]);
  record.cols = static_cast<uint32_t>(y.shape[last]);
  record.rows = static_cast<uint32_t>(element_count(y) / y.shape[last]);
  record.a_k = a.strides[last] * dtype_size_bits(a.dtype);
  record.y_n = y.strides[last] * dtype_size_bytes(y.dtype);
  constants.y_type = one_of(kF32Dtypes, y.dtype);
}

bp_status submit_scaled(Launch& launch, const ScaledRecord& record, ScaledConstants constants,
                        const Touched& touched) {
  uint64_t groups = ceil_divide(record.rows, kTileEdge) * ceil_divide(record.cols, kTileEdge);
  if (record.rows <= kFewRows) {
    constants.few_rows = std::bit_ceil(record.rows);
    groups = ceil_divide(record.cols, kColumnsOfGroup);
  }
  const std::array<uint32_t, 15> values = std::bit_cast<std::array<uint32_t, 15>>(constants);
  return submit(launch, kMatmulScaledModule, values, record, groups, touched);
}

// Returns why the extents of a product are too large, or NULL.
bp_reason extents_reason(const bp_tensor& a, const bp_tensor& y) {
  constexpr int64_t kMostRows = int64_t{1} << 31;
  if (a.shape[a.ndim - 1] > kMostOfProduct) return "k is larger than 65536";
  return element_count(y) > kMostRows ? "y has more than 2^31 elements" : nullptr;
}

// ---- matmul_scaled ------------------------------------------------------------------------------

bp_reason matmul_scaled_supports(const bp_matmul_scaled_args& args) {
  return extents_reason(*args.a, *args.y);
}

void put_scales(const Launch& launch, const bp_matmul_scaled_args& args, ScaledRecord& record,
                ScaledConstants& constants) {
  const bp_tensor &a = *args.a, &b = *args.b, &b_scale = *args.b_scale;
  constants.b_type = one_of(kCodeDtypes, b.dtype);
  record.b_n = b.strides[0] * dtype_size_bits(b.dtype);
  record.b_k = b.strides[1] * dtype_size_bits(b.dtype);
  const auto block_of = [](const BlockAxis& axis) { return axis.stride == 0 ? 0 : axis.block; };
  const BlockAxis of_rows = block_axis(b, b_scale, 0), of_depth = block_axis(b, b_scale, 1);
  constants.b_scale_type = one_of(kScaleDtypes, b_scale.dtype);
  constants.b_rows_of_block = b_scale.shape[0] <= 1 ? 0 : of_rows.block;
  constants.b_block = b_scale.shape[1] <= 1 ? 0 : of_depth.block;
  record.b_scale = address_of(launch, &b_scale);
  record.b_scale_n = of_rows.stride * dtype_size_bytes(b_scale.dtype);
  record.b_scale_k = of_depth.stride * dtype_size_bytes(b_scale.dtype);
  record.b_tensor_scale = address_of(launch, args.b_tensor_scale);
  if (args.b_zero != nullptr) {
    const int64_t bits = dtype_size_bits(b.dtype);
    constants.has_zero = 1;
    record.b_zero = address_of(launch, args.b_zero);
    record.b_zero_n = block_axis(b, *args.b_zero, 0).stride * bits;
    record.b_zero_k = block_axis(b, *args.b_zero, 1).stride * bits;
  }
  if (args.a_scale == nullptr) {
    constants.a_type = one_of(kF32Dtypes, a.dtype);
    return;
  }
  const BlockAxis of_a = block_axis(a, *args.a_scale, a.ndim - 1);
  constants.a_type = one_of(kCodeDtypes, a.dtype);
  constants.a_scale_type = one_of(kScaleDtypes, args.a_scale->dtype);
  constants.a_block = block_of(of_a);
  record.a_scale = address_of(launch, args.a_scale);
  record.a_scale_k = of_a.stride * dtype_size_bytes(args.a_scale->dtype);
  record.a_tensor_scale = address_of(launch, args.a_tensor_scale);
  if (args.a_zero == nullptr) return;
  record.a_zero = address_of(launch, args.a_zero);
  record.a_zero_k = block_axis(a, *args.a_zero, a.ndim - 1).stride * dtype_size_bits(a.dtype);
}

bp_status matmul_scaled_launch(const bp_matmul_scaled_args& args, Launch& launch) {
  if (const bp_reason reason = matmul_scaled_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul_scaled: ") + reason);
  }
  if (element_count(*args.y) == 0) return BP_OK;
  ScaledRecord record{};
  ScaledConstants constants;
  put_matrices(launch, *args.a, *args.b, *args.y, record, constants);
  put_rows(*args.a, *args.y, args.a_scale, args.a_zero, record, constants);
  put_scales(launch, args, record, constants);
  return submit_scaled(launch, record, constants,
                       {Ranges(launch, {args.a, args.b, args.a_scale, args.b_scale, args.b_zero,
                                        args.a_zero, args.a_tensor_scale, args.b_tensor_scale}),
                        Ranges(launch, {args.y})});
}

// ---- Weights in blocks --------------------------------------------------------------------------

template <typename Args>
bp_reason blocks_supports(const Args& args, const Env& env) {
  const BlockProduct p = block_product_of(args);
  if (const bp_reason reason = block_product_reason(args, format_of(env, p.weight))) return reason;
  return extents_reason(p.x, p.y);
}

template <typename Args>
bp_status blocks_launch(const Args& args, Launch& launch) {
  if (const bp_reason reason = blocks_supports(args, launch)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("product with a weight in blocks: ") + reason);
  }
  const BlockProduct p = block_product_of(args);
  if (element_count(p.y) == 0) return BP_OK;
  ScaledRecord record{};
  ScaledConstants constants;
  put_matrices(launch, p.x, p.weight, p.y, record, constants);
  put_rows(p.x, p.y, nullptr, nullptr, record, constants);
  constants.a_type = one_of(kF32Dtypes, p.x.dtype);
  constants.format = format_of(launch, p.weight)->number;
  constants.activation = p.activation;
  constants.has_bias = p.bias != nullptr ? 1 : 0;
  // Blocks follow each other along the last axis.
  record.b_n = p.n == 1 ? 1 : p.weight.shape[1];
  record.b_k = p.k == 1 ? 1 : p.weight.shape[1];
  record.bias = address_of(launch, p.bias);
  if (p.bias != nullptr) record.bias_n = p.bias->strides[0] * dtype_size_bytes(p.bias->dtype);
  return submit_scaled(launch, record, constants,
                       {Ranges(launch, {&p.x, &p.weight, p.bias}), Ranges(launch, {&p.y})});
}

template <typename Args>
constexpr bp_kernel block_kernel(const char* name, uint32_t op) {
  return planned_kernel<Launcher, Args, blocks_launch<Args>, blocks_supports<Args>, nullptr, void>(
      block_product_row(name, op));
}

}  // namespace

constinit const bp_kernel kMatmulScaled =
    make_kernel<bp_matmul_scaled_args, matmul_scaled_launch, matmul_scaled_supports>(
        kernel_row("matmul_scaled", BP_OP_MATMUL_SCALED, {kScaledProductDtypes, 5}));
constinit const bp_kernel kLinearBlocks =
    block_kernel<bp_linear_args>("linear.blocks", BP_OP_LINEAR);
constinit const bp_kernel kMatmulBlocks =
    block_kernel<bp_matmul_args>("matmul.blocks", BP_OP_MATMUL);

}  // namespace bp::vulkan
