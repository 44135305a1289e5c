// matmul of integers, for every stride and every mixture of their dtypes. Products wrap in the
// dtype of y. Low bits of a sum depend on the low bits of its terms alone, so sums have 32 bits if
// y has no more, and 64 bits otherwise.
//
// Factors of 8 bits are multiplied by the tensor cores: a block of 8 warps computes a tile of 64 by
// 64, and a warp 16 by 32 of it. A word of shared memory holds four neighbours along the depth. A
// sum of at most 2^15 products of bytes fits in 32 bits, after which it is added to 64 bits if y is
// so wide. All other factors take a tile of 64 by 64 as in product_tiles.cu. On AMD's GPUs, factors
// of 8 bits do so too.
#include <algorithm>
#include <string>

#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/product_axes.cuh"
#include "backplane/shell/quantized.hpp"

#if !BP_IS_HIP
#include "backends/cuda/kernels/mma.cuh"
#endif

namespace bp::cuda {
namespace {

constexpr int kTile = 64;
constexpr unsigned kMostBatchBlocks = 65535;

// A matrix on the device.
struct IntegerMatrix {
  std::byte* address = nullptr;
  uint32_t dtype = 0;
  int64_t row_stride = 0, col_stride = 0;
};

struct IntegerPlan {
  int64_t rows = 0, cols = 0, depth = 0;
  uint32_t col_tiles = 0, batches = 0;
  IntegerMatrix a, b, y;
  Axes<4> batch;
};

// Returns the low bits of an element, extended by its sign.
template <typename Sum>
__device__ __forceinline__ Sum load_low(const IntegerMatrix& m, int64_t at) {
  switch (m.dtype) {
    case BP_I8:
      return static_cast<Sum>(reinterpret_cast<const int8_t*>(m.address)[at]);
    case BP_U8:
      return static_cast<Sum>(reinterpret_cast<const uint8_t*>(m.address)[at]);
    case BP_I16:
      return static_cast<Sum>(reinterpret_cast<const int16_t*>(m.address)[at]);
    case BP_I32:
      return static_cast<Sum>(reinterpret_cast<const int32_t*>(m.address)[at]);
    default:
      return static_cast<Sum>(reinterpret_cast<const int64_t*>(m.address)[at]);
  }
}

// Writes the low bits of a sum.
template <typename Sum>
__device__ __forceinline__ void store_low(const IntegerMatrix& m, int64_t at, Sum sum) {
  switch (m.dtype) {
    case BP_I8:
    case BP_U8:
      reinterpret_cast<uint8_t*>(m.address)[at] = static_cast<uint8_t>(sum);
      break;
    case BP_I16:
      reinterpret_cast<uint16_t*>(m.address)[at] = static_cast<uint16_t>(sum);
      break;
    case BP_I32:
      reinterpret_cast<uint32_t*>(m.address)[at] = static_cast<uint32_t>(sum);
      break;
    default:
      reinterpret_cast<uint64_t*>(m.address)[at] = static_cast<uint64_t>(sum);
      break;
  }
}

// ---- Integers of every width --------------------------------------------------------------------

constexpr int kDepth = 16, kPerThread = 4, kLines = kTile / kPerThread;
static_assert(kLines * kLines == kBlockThreads);

// Copies kTile lines of kDepth elements to shared memory, as to[depth][line], with zeros beyond the
// ends. Neighbouring threads read neighbours in memory.
template <typename Sum>
__device__ __forceinline__ void load_tile(const IntegerMatrix& m, int64_t offset,
                                          int64_t line_stride, int64_t depth_stride,
                                          int64_t first_line, int64_t lines, int64_t first_depth,
                                          int64_t depth, Sum (&to)[kDepth][kTile + 1]) {
  const bool is_deep = depth_stride == 1;
  BP_UNROLL
  for (int i = 0; i < kTile * kDepth / static_cast<int>(kBlockThreads); ++i) {
    const int number = static_cast<int>(threadIdx.x + i * kBlockThreads);
    const int line = is_deep ? number / kDepth : number % kTile;
    const int deep = is_deep ? number % kDepth : number / kTile;
    const int64_t at_line = first_line + line, at_depth = first_depth + deep;
    to[deep][line] =
        at_line < lines && at_depth < depth
            ? load_low<Sum>(m, offset + at_line * line_stride + at_depth * depth_stride)
            : Sum{0};
  }
}

template <typename Sum>
__global__ void __launch_bounds__(kBlockThreads) integer_tiles(IntegerPlan p) {
  __shared__ Sum a[kDepth][kTile + 1], b[kDepth][kTile + 1];
  const int64_t first_row = int64_t{blockIdx.x / p.col_tiles} * kTile;
  const int64_t first_col = int64_t{blockIdx.x % p.col_tiles} * kTile;
  const int row = static_cast<int>(threadIdx.x) / kLines;
  const int col = static_cast<int>(threadIdx.x) % kLines;
  for (uint32_t batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
    int64_t at[4];
    p.batch.locate(batch, at);
    Sum sums[kPerThread][kPerThread] = {};
    for (int64_t k = 0; k < p.depth; k += kDepth) {
      __syncthreads();
      load_tile(p.a, at[kAxesA], p.a.row_stride, p.a.col_stride, first_row, p.rows, k, p.depth, a);
      load_tile(p.b, at[kAxesB], p.b.col_stride, p.b.row_stride, first_col, p.cols, k, p.depth, b);
      __syncthreads();
      BP_UNROLL
      for (int d = 0; d < kDepth; ++d) {
        BP_UNROLL
        for (int i = 0; i < kPerThread; ++i) {
          const Sum left = a[d][row + i * kLines];
          BP_UNROLL
          for (int j = 0; j < kPerThread; ++j) sums[i][j] += left * b[d][col + j * kLines];
        }
      }
    }
    BP_UNROLL
    for (int i = 0; i < kPerThread; ++i) {
      BP_UNROLL
      for (int j = 0; j < kPerThread; ++j) {
        const int64_t y_row = first_row + row + i * kLines, y_col = first_col + col + j * kLines;
        if (y_row >= p.rows || y_col >= p.cols) continue;
        store_low(p.y, at[kAxesY] + y_row * p.y.row_stride + y_col * p.y.col_stride, sums[i][j]);
      }
    }
  }
}

// ---- Bytes --------------------------------------------------------------------------------------

#if !BP_IS_HIP

// A slice of the depth has 16 words. Rows of 20 words lie so that the 32 words that a warp reads at
// once are in different banks.
constexpr int kSlice = 64, kWords = kSlice / 4, kRowWords = kWords + 4;
constexpr int kWarpCols = 32, kProducts = kWarpCols / 8;
constexpr int64_t kMostTerms = 1 << 15;  // 2^15 * 255 * 255 is below 2^31.

// Copies kTile lines of kSlice bytes to shared memory, as to[line][depth / 4], with zeros beyond
// the ends. Neighbouring threads read neighbours in memory.
__device__ __forceinline__ void load_bytes(const std::byte* from, int64_t line_stride,
                                           int64_t depth_stride, int64_t lines, int64_t depth,
                                           uint32_t (&to)[kTile][kRowWords]) {
  const bool is_deep = depth_stride == 1;
  BP_UNROLL_BY_2
  for (int i = 0; i < kTile * kWords / static_cast<int>(kBlockThreads); ++i) {
    const int number = static_cast<int>(threadIdx.x + i * kBlockThreads);
    const int line = is_deep ? number / kWords : number % kTile;
    const int place = is_deep ? number % kWords : number / kTile;
    const std::byte* const at = from + line * line_stride + 4 * place * depth_stride;
    const int64_t left = line < lines ? depth - 4 * place : 0;
    uint32_t word = 0;
    if (is_deep && left >= 4 && reinterpret_cast<uint64_t>(at) % 4 == 0) {
      word = *reinterpret_cast<const uint32_t*>(at);
    } else {
      BP_UNROLL
      for (int byte = 0; byte < 4; ++byte) {
        if (byte < left) word |= static_cast<uint32_t>(at[byte * depth_stride]) << (8 * byte);
      }
    }
    to[line][place] = word;
  }
}

// A and B are int8_t or uint8_t. Sum has as many bits as y needs.
template <typename A, typename B, typename Sum>
__global__ void __launch_bounds__(kBlockThreads, 2) byte_tiles(IntegerPlan p) {
  __shared__ uint32_t a[kTile][kRowWords], b[kTile][kRowWords];
  const int64_t first_row = int64_t{blockIdx.x / p.col_tiles} * kTile;
  const int64_t first_col = int64_t{blockIdx.x % p.col_tiles} * kTile;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int g = lane / 4, t = lane % 4;
  const int row = warp / 2 * 16 + g, col = warp % 2 * kWarpCols;
  for (uint32_t batch = blockIdx.y; batch < p.batches; batch += gridDim.y) {
    int64_t at[4];
    p.batch.locate(batch, at);
    const std::byte* const a_begin = p.a.address + at[kAxesA] + first_row * p.a.row_stride;
    const std::byte* const b_begin = p.b.address + at[kAxesB] + first_col * p.b.col_stride;
    constexpr bool kIsWide = sizeof(Sum) > sizeof(uint32_t);
    Sum totals[kProducts][4] = {};  // Not used if y has 32 bits.
    uint32_t sums[kProducts][4] = {};
    for (int64_t k = 0; k < p.depth; k += kSlice) {
      __syncthreads();
      load_bytes(a_begin + k * p.a.col_stride, p.a.row_stride, p.a.col_stride, p.rows - first_row,
                 p.depth - k, a);
      load_bytes(b_begin + k * p.b.row_stride, p.b.col_stride, p.b.row_stride, p.cols - first_col,
                 p.depth - k, b);
      __syncthreads();
      BP_UNROLL
      for (int word = 0; word < kWords; word += 8) {
        const uint32_t left[4] = {a[row][word + t], a[row + 8][word + t], a[row][word + 4 + t],
                                  a[row + 8][word + 4 + t]};
        BP_UNROLL
        for (int i = 0; i < kProducts; ++i) {
          const uint32_t* const right = b[col + 8 * i + g];
          mma_bytes<A, B>(sums[i], left, right[word + t], right[word + 4 + t]);
        }
      }
      if constexpr (kIsWide) {
        if ((k + kSlice) % kMostTerms != 0 && k + kSlice < p.depth) continue;
        BP_UNROLL
        for (int i = 0; i < kProducts; ++i) {
          BP_UNROLL
          for (int j = 0; j < 4; ++j) {
            // A sum of bytes without signs is below 2^31 as well, so its sign bit is 0.
            totals[i][j] += static_cast<Sum>(static_cast<int32_t>(sums[i][j]));
            sums[i][j] = 0;
          }
        }
      }
    }
    BP_UNROLL
    for (int i = 0; i < kProducts; ++i) {
      BP_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int64_t y_row = first_row + row + j / 2 * 8;
        const int64_t y_col = first_col + col + 8 * i + 2 * t + j % 2;
        if (y_row >= p.rows || y_col >= p.cols) continue;
        const Sum sum = kIsWide ? totals[i][j] : static_cast<Sum>(sums[i][j]);
        store_low(p.y, at[kAxesY] + y_row * p.y.row_stride + y_col * p.y.col_stride, sum);
      }
    }
  }
}

#endif

// ---- Launches -----------------------------------------------------------------------------------

IntegerMatrix matrix(const ProductOperand& o) {
  return {o.address, one_of(kProductIntegers, o.dtype), o.row_stride, o.col_stride};
}

template <auto kKernel>
bp_status launch_tiles(const IntegerPlan& plan, dim3 blocks, Launch& launch) {
  return run<kKernel>(launch, blocks, kBlockThreads, 0, plan);
}

template <typename Sum>
bp_status launch_sums(const IntegerPlan& plan, dim3 blocks, Launch& launch) {
#if BP_IS_HIP
  return launch_tiles<integer_tiles<Sum>>(plan, blocks, launch);
#else
  const auto is_byte = [](uint32_t dtype) { return dtype == BP_I8 || dtype == BP_U8; };
  if (!is_byte(plan.a.dtype) || !is_byte(plan.b.dtype)) {
    return launch_tiles<integer_tiles<Sum>>(plan, blocks, launch);
  }
  if (plan.a.dtype == BP_I8) {
    return plan.b.dtype == BP_I8
               ? launch_tiles<byte_tiles<int8_t, int8_t, Sum>>(plan, blocks, launch)
               : launch_tiles<byte_tiles<int8_t, uint8_t, Sum>>(plan, blocks, launch);
  }
  return plan.b.dtype == BP_I8
             ? launch_tiles<byte_tiles<uint8_t, int8_t, Sum>>(plan, blocks, launch)
             : launch_tiles<byte_tiles<uint8_t, uint8_t, Sum>>(plan, blocks, launch);
#endif
}

bp_reason integers_supports(const bp_matmul_args& args) {
  const bp_tensor& y = *args.y;
  const int64_t rows = y.shape[y.ndim - 2], cols = y.shape[y.ndim - 1];
  if (rows > INT32_MAX || cols > INT32_MAX || element_count(y) > int64_t{1} << 40) {
    return "y has more than 2^31 - 1 rows or columns, or 2^40 elements";
  }
  return scaled_sum_reason(args);
}

bp_status integers_launch(const bp_matmul_args& args, Launch& launch) {
  if (const bp_reason reason = integers_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul: ") + reason);
  }
  const Product product = product_of(args);
  if (product.is_empty()) return BP_OK;
  IntegerPlan plan;
  plan.rows = product.y.rows;
  plan.cols = product.y.cols;
  plan.depth = product.a.cols;
  plan.a = matrix(product.a);
  plan.b = matrix(product.b);
  plan.y = matrix(product.y);
  plan.batch = batch_axes(product);
  const int64_t col_tiles = (plan.cols + kTile - 1) / kTile, batches = product.batch_count();
  const int64_t tiles = col_tiles * ((plan.rows + kTile - 1) / kTile);
  if (tiles > INT32_MAX || batches > INT32_MAX) {
    return launch.refuse(BP_UNSUPPORTED,
                         "matmul: the product has more than 2^31 - 1 tiles or "
                         "batches");
  }
  plan.col_tiles = static_cast<uint32_t>(col_tiles);
  plan.batches = static_cast<uint32_t>(batches);
  const dim3 blocks(static_cast<unsigned>(tiles), std::min(plan.batches, kMostBatchBlocks));
  return plan.y.dtype == BP_I64 ? launch_sums<uint64_t>(plan, blocks, launch)
                                : launch_sums<uint32_t>(plan, blocks, launch);
}

}  // namespace

constinit const bp_kernel kMatmulIntegers =
    make_kernel<bp_matmul_args, integers_launch, integers_supports>(
        kernel_row("matmul.integers", BP_OP_MATMUL, {kIntegerProductDtypes, 3}));

}  // namespace bp::cuda
