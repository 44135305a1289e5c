// Products whose weight consists of codes, y = activation(a b^T + bias): matmul_scaled, and linear
// and matmul with a weight in the blocks of a file. Elements are decoded where they are used, so
// that the product needs no workspace and reads as many bytes as the codes have. Sums are f32, and
// are added up in blocks and in one order, so that equal input gives equal bits.
//
// There are two kernels. For up to 8 rows, where the limit is reading the weight, a warp computes
// one column of y: each lane decodes an element of the weight once for all rows. For more rows a
// block of 256 threads computes a tile of 64 by 64, as in product_tiles.cu. Codes become numbers by
// a table in shared memory, so all dtypes of codes take the same time.
#include <algorithm>
#include <string>

#include "backends/cuda/kernels/activation.cuh"
#include "backends/cuda/kernels/blocks.cuh"
#include "backends/cuda/kernels/blocks.hpp"
#include "backends/cuda/kernels/codes.cuh"
#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/mixed.cuh"
#include "backplane/shell/block_product.hpp"
#include "backplane/shell/quantized.hpp"

namespace bp::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kPerThread = 4;
constexpr int kTileLines = kTile / kPerThread;
constexpr int kFewRows = 8;
constexpr int kWarps = static_cast<int>(kBlockThreads) / kWarpSize;
static_assert(kTileLines * kTileLines == kBlockThreads && kBlockThreads == kMostCodes);

// A tensor of codes with its scales. Codes and zero points lie at bits, scales at elements.
struct Codes {
  const std::byte *address = nullptr, *scale = nullptr, *zero = nullptr;
  const float* whole = nullptr;  // The scale of the whole tensor, or NULL.
  uint32_t dtype = 0, bits = 8, scale_dtype = 0;

  // Returns the number at a bit, whose block has these places of its scale and its zero point.
  __device__ __forceinline__ float number(const float* table, int64_t bit, int64_t scale_at,
                                          int64_t zero_bit) const {
    float number = table[load_code(bits, address, bit)];
    if (zero != nullptr) number -= table[load_code(bits, zero, zero_bit)];
    return product_of(number, load_scale(scale_dtype, scale, scale_at, whole));
  }
  // Thread i writes the number of code i.
  __device__ __forceinline__ void fill(float* table) const {
    table[threadIdx.x] = number_of_code(dtype, threadIdx.x);
  }
};

// b of matmul_scaled, (cols, depth).
struct CodeWeight {
  Codes codes;
  Divider cols_of_block, depth_of_block;  // The elements that share a scale.
  int64_t col_stride = 0, depth_stride = 0;
  int64_t scale_col_stride = 0, scale_depth_stride = 0;
  int64_t zero_col_stride = 0, zero_depth_stride = 0;

  __device__ __forceinline__ void fill(float* table) const { codes.fill(table); }
  __device__ __forceinline__ float value(const float* table, uint32_t col, uint32_t k) const {
    const uint32_t i = cols_of_block.divide(col), j = depth_of_block.divide(k);
    return codes.number(table, col * col_stride + k * depth_stride,
                        i * scale_col_stride + j * scale_depth_stride,
                        i * zero_col_stride + j * zero_depth_stride);
  }
};

// A weight in blocks, which follow each other along its last axis. Strides count elements.
struct BlockWeight {
  const std::byte* address = nullptr;
  uint32_t format = 0;
  int64_t col_stride = 0, depth_stride = 0;

  __device__ __forceinline__ void fill(float*) const {}
  __device__ __forceinline__ float value(const float*, uint32_t col, uint32_t k) const {
    return number_in_blocks(format, address, col * col_stride + k * depth_stride);
  }
};

// Where a row of a, of its scales and of y begins. Codes and zero points lie at bits.
struct RowPlace {
  int64_t a, y, scale, zero;
};

// a (..., depth) and y (..., cols). The axes before the last one are rows, the innermost first.
struct ScaledPlan {
  uint32_t rows = 0, cols = 0, depth = 0;
  uint32_t block = 0;      // The depth that is summed at a time.
  uint32_t col_tiles = 0;  // Of the tiles.
  Codes a;                 // An a of floats has no scale.
  MixedKind a_kind = MixedKind::kWide, y_kind = MixedKind::kWide;
  Divider depth_of_block;  // The elements of a row of a that share a scale.
  int64_t a_stride = 0, scale_stride = 0, zero_stride = 0;  // Along a row of a.
  std::byte* y = nullptr;
  int64_t y_stride = 0;
  const std::byte* bias = nullptr;
  int64_t bias_stride = 0;
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE;
  int rank = 1;
  Divider extents[kMaxRank], blocks[kMaxRank];
  int64_t a_rows[kMaxRank] = {}, y_rows[kMaxRank] = {};
  int64_t scale_rows[kMaxRank] = {}, zero_rows[kMaxRank] = {};

  __device__ __forceinline__ RowPlace place_of(uint32_t row) const {
    RowPlace place = {0, 0, 0, 0};
    BP_UNROLL
    for (int axis = 0; axis < kMaxRank; ++axis) {
      if (axis == rank) break;
      uint32_t i = row;
      if (axis + 1 < rank) {
        const uint32_t next = extents[axis].divide(row);
        i = row - next * extents[axis].divisor();
        row = next;
      }
      const uint32_t number = blocks[axis].divide(i);
      place.a += i * a_rows[axis];
      place.y += i * y_rows[axis];
      place.scale += number * scale_rows[axis];
      place.zero += number * zero_rows[axis];
    }
    return place;
  }
  __device__ __forceinline__ void fill(float* table) const {
    if (a.scale != nullptr) a.fill(table);
  }
  __device__ __forceinline__ float value(const float* table, const RowPlace& row,
                                         uint32_t k) const {
    const int64_t at = row.a + k * a_stride;
    if (a.scale == nullptr) return load_as<float>(a.address, a_kind, at);
    const uint32_t number = depth_of_block.divide(k);
    return a.number(table, at, row.scale + number * scale_stride, row.zero + number * zero_stride);
  }
  __device__ __forceinline__ void store(const RowPlace& row, uint32_t col, float sum) const {
    if (bias != nullptr) sum += load_as<float>(bias, y_kind, col * bias_stride);
    store_as<float>(y, y_kind, row.y + col * y_stride, activate(activation, sum));
  }
};

// A warp computes one column of at most kFewRows rows.
template <class Weight>
__global__ void __launch_bounds__(kBlockThreads) scaled_columns(ScaledPlan p, Weight weight) {
  __shared__ float a_table[kMostCodes], b_table[kMostCodes];
  __shared__ RowPlace places[kFewRows];
  p.fill(a_table);
  weight.fill(b_table);
  if (threadIdx.x < p.rows) places[threadIdx.x] = p.place_of(threadIdx.x);
  __syncthreads();
  const uint32_t lane = threadIdx.x % kWarpSize;
  const uint32_t col = blockIdx.x * kWarps + threadIdx.x / kWarpSize;
  if (col >= p.cols) return;
  float totals[kFewRows] = {};
  for (uint32_t begin = 0; begin < p.depth; begin += p.block) {
    const uint32_t end = p.depth - begin < p.block ? p.depth : begin + p.block;
    float sums[kFewRows] = {};
    for (uint32_t k = begin + lane; k < end; k += kWarpSize) {
      const float value = weight.value(b_table, col, k);
      BP_UNROLL
      for (int row = 0; row < kFewRows; ++row) {
        if (row < static_cast<int>(p.rows)) sums[row] += p.value(a_table, places[row], k) * value;
      }
    }
    BP_UNROLL
    for (int row = 0; row < kFewRows; ++row) totals[row] += sums[row];
  }
  BP_UNROLL
  for (int row = 0; row < kFewRows; ++row) {
    if (row >= static_cast<int>(p.rows)) break;
    const float total = warp_reduce(totals[row], Plus());
    if (lane == static_cast<uint32_t>(row)) p.store(places[row], col, total);
  }
}

// A block computes a tile of kTile by kTile.
template <class Weight>
__global__ void __launch_bounds__(kBlockThreads) scaled_tiles(ScaledPlan p, Weight weight) {
  __shared__ float a[kDepth][kTile + 1], b[kDepth][kTile + 1];
  __shared__ float a_table[kMostCodes], b_table[kMostCodes];
  __shared__ RowPlace places[kTile];
  const uint32_t first_row = blockIdx.x / p.col_tiles * kTile;
  const uint32_t first_col = blockIdx.x % p.col_tiles * kTile;
  p.fill(a_table);
  weight.fill(b_table);
  if (threadIdx.x < kTile && first_row + threadIdx.x < p.rows) {
    places[threadIdx.x] = p.place_of(first_row + threadIdx.x);
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / kTileLines;
  const int col = static_cast<int>(threadIdx.x) % kTileLines;
  float totals[kPerThread][kPerThread] = {};
  for (uint32_t begin = 0; begin < p.depth; begin += p.block) {
    const uint32_t end = p.depth - begin < p.block ? p.depth : begin + p.block;
    float sums[kPerThread][kPerThread] = {};
    for (uint32_t first = begin; first < end; first += kDepth) {
      __syncthreads();
      for (int i = 0; i < kTile * kDepth / static_cast<int>(kBlockThreads); ++i) {
        const uint32_t number = threadIdx.x + i * kBlockThreads;
        const uint32_t line = number / kDepth, deep = number % kDepth, k = first + deep;
        const bool has_row = first_row + line < p.rows && k < p.depth;
        const bool has_col = first_col + line < p.cols && k < p.depth;
        a[deep][line] = has_row ? p.value(a_table, places[line], k) : 0.0f;
        b[deep][line] = has_col ? weight.value(b_table, first_col + line, k) : 0.0f;
      }
      __syncthreads();
      BP_UNROLL
      for (int deep = 0; deep < kDepth; ++deep) {
        BP_UNROLL
        for (int i = 0; i < kPerThread; ++i) {
          const float left = a[deep][row + i * kTileLines];
          BP_UNROLL
          for (int j = 0; j < kPerThread; ++j) {
            sums[i][j] += left * b[deep][col + j * kTileLines];
          }
        }
      }
    }
    BP_UNROLL
    for (int i = 0; i < kPerThread; ++i) {
      BP_UNROLL
      for (int j = 0; j < kPerThread; ++j) totals[i][j] += sums[i][j];
    }
  }
  for (int i = 0; i < kPerThread; ++i) {
    for (int j = 0; j < kPerThread; ++j) {
      const uint32_t line = row + i * kTileLines, y_col = first_col + col + j * kTileLines;
      if (first_row + line < p.rows && y_col < p.cols) p.store(places[line], y_col, totals[i][j]);
    }
  }
}

// ---- Plans --------------------------------------------------------------------------------------

// Returns why the extents of a product are too large, or NULL.
bp_reason extents_reason(const bp_tensor& a, const bp_tensor& y) {
  const int64_t cols = y.shape[y.ndim - 1], rows = cols == 0 ? 0 : element_count(y) / cols;
  if (a.shape[a.ndim - 1] > INT32_MAX) return "k is larger than 2^31 - 1";
  if (rows > INT32_MAX || cols > INT32_MAX) return "y has more than 2^31 - 1 rows or columns";
  const int64_t tiles = (rows + kTile - 1) / kTile * ((cols + kTile - 1) / kTile);
  return tiles > INT32_MAX ? "y has more than 2^31 - 1 tiles" : nullptr;
}

// Returns the plan of a product, in which a has no scales.
ScaledPlan plan_of(const bp_tensor& a, const bp_tensor& y) {
  const uint32_t last = a.ndim - 1;
  const bool has_codes = dtype_size_bits(a.dtype) <= 8;
  const int64_t a_unit = has_codes ? dtype_size_bits(a.dtype) : 1;
  ScaledPlan plan;
  plan.depth = static_cast<uint32_t>(a.shape[last]);
  plan.cols = static_cast<uint32_t>(y.shape[last]);
  plan.rows = static_cast<uint32_t>(element_count(y) / y.shape[last]);
  const int unit = plan.rows <= kFewRows ? kWarpSize : kDepth;
  plan.block = static_cast<uint32_t>(block_of_sum(plan.depth, unit));
  plan.a.address = data<const std::byte>(a);
  if (!has_codes) plan.a_kind = mixed_kind<float>(a.dtype);
  plan.a_stride = a.strides[last] * a_unit;
  plan.y = data<std::byte>(y);
  plan.y_kind = mixed_kind<float>(y.dtype);
  plan.y_stride = y.strides[last];
  plan.rank = static_cast<int>(std::max(last, 1u));
  for (uint32_t i = 0; i < last; ++i) {
    const uint32_t axis = last - 1 - i;
    plan.extents[i] = Divider(static_cast<uint32_t>(a.shape[axis]));
    plan.a_rows[i] = a.strides[axis] * a_unit;
    plan.y_rows[i] = y.strides[axis];
  }
  return plan;
}

Codes codes_of(const bp_tensor& codes, const bp_tensor& scale, const bp_tensor* zero,
               const bp_tensor* whole) {
  Codes result;
  result.address = data<const std::byte>(codes);
  result.scale = data<const std::byte>(scale);
  if (zero != nullptr) result.zero = data<const std::byte>(*zero);
  if (whole != nullptr) result.whole = data<const float>(*whole);
  result.dtype = one_of(kCodeDtypes, codes.dtype);
  result.bits = static_cast<uint32_t>(dtype_size_bits(codes.dtype));
  result.scale_dtype = one_of(kScaleDtypes, scale.dtype);
  return result;
}

// Returns how far apart the zero points of two neighbouring blocks are, in bits.
int64_t zero_stride(const bp_tensor& codes, const bp_tensor* zero, uint32_t axis) {
  if (zero == nullptr) return 0;
  return block_axis(codes, *zero, axis).stride * dtype_size_bits(codes.dtype);
}

void put_scales(const bp_matmul_scaled_args& args, ScaledPlan& plan) {
  const bp_tensor &a = *args.a, &scale = *args.a_scale;
  const uint32_t last = a.ndim - 1;
  plan.a = codes_of(a, scale, args.a_zero, args.a_tensor_scale);
  const BlockAxis along = block_axis(a, scale, last);
  plan.depth_of_block = Divider(along.block);
  plan.scale_stride = along.stride;
  plan.zero_stride = zero_stride(a, args.a_zero, last);
  for (uint32_t i = 0; i < last; ++i) {
    const BlockAxis of_rows = block_axis(a, scale, last - 1 - i);
    plan.blocks[i] = Divider(of_rows.block);
    plan.scale_rows[i] = of_rows.stride;
    plan.zero_rows[i] = zero_stride(a, args.a_zero, last - 1 - i);
  }
}

CodeWeight weight_of(const bp_matmul_scaled_args& args) {
  const bp_tensor& b = *args.b;
  const int64_t bits = dtype_size_bits(b.dtype);
  const BlockAxis cols = block_axis(b, *args.b_scale, 0), depth = block_axis(b, *args.b_scale, 1);
  CodeWeight weight;
  weight.codes = codes_of(b, *args.b_scale, args.b_zero, args.b_tensor_scale);
  weight.cols_of_block = Divider(cols.block);
  weight.depth_of_block = Divider(depth.block);
  weight.col_stride = b.strides[0] * bits;
  weight.depth_stride = b.strides[1] * bits;
  weight.scale_col_stride = cols.stride;
  weight.scale_depth_stride = depth.stride;
  weight.zero_col_stride = zero_stride(b, args.b_zero, 0);
  weight.zero_depth_stride = zero_stride(b, args.b_zero, 1);
  return weight;
}

template <class Weight>
bp_status launch_scaled(Launch& launch, ScaledPlan plan, const Weight& weight) {
  if (plan.rows <= kFewRows) {
    return run<scaled_columns<Weight>>(launch, blocks_for(plan.cols, kWarps), kBlockThreads, 0,
                                       plan, weight);
  }
  plan.col_tiles = blocks_for(plan.cols, kTile);
  return run<scaled_tiles<Weight>>(launch, plan.col_tiles * blocks_for(plan.rows, kTile),
                                   kBlockThreads, 0, plan, weight);
}

// ---- The ops ------------------------------------------------------------------------------------

bp_reason scaled_supports(const bp_matmul_scaled_args& args) {
  return extents_reason(*args.a, *args.y);
}

bp_status scaled_launch(const bp_matmul_scaled_args& args, Launch& launch) {
  if (const bp_reason reason = scaled_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul_scaled: ") + reason);
  }
  if (element_count(*args.y) == 0) return BP_OK;
  ScaledPlan plan = plan_of(*args.a, *args.y);
  if (args.a_scale != nullptr) put_scales(args, plan);
  return launch_scaled(launch, plan, weight_of(args));
}

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
  ScaledPlan plan = plan_of(p.x, p.y);
  plan.activation = p.activation;
  if (p.bias != nullptr) {
    plan.bias = data<const std::byte>(*p.bias);
    plan.bias_stride = p.bias->strides[0];
  }
  BlockWeight weight;
  weight.address = data<const std::byte>(p.weight);
  weight.format = format_of(launch, p.weight)->number;
  weight.col_stride = p.n == 1 ? 1 : p.weight.shape[1];
  weight.depth_stride = p.k == 1 ? 1 : p.weight.shape[1];
  return launch_scaled(launch, plan, weight);
}

}  // namespace

constinit const bp_kernel kMatmulScaled =
    make_kernel<bp_matmul_scaled_args, scaled_launch, scaled_supports>(
        kernel_row("matmul_scaled", BP_OP_MATMUL_SCALED, {kScaledProductDtypes, 5}));
constinit const bp_kernel kLinearBlocks =
    make_kernel<bp_linear_args, blocks_launch<bp_linear_args>, blocks_supports<bp_linear_args>>(
        block_product_row("linear.blocks", BP_OP_LINEAR));
constinit const bp_kernel kMatmulBlocks =
    make_kernel<bp_matmul_args, blocks_launch<bp_matmul_args>, blocks_supports<bp_matmul_args>>(
        block_product_row("matmul.blocks", BP_OP_MATMUL));

}  // namespace bp::cuda
