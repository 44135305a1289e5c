// The gradients of gamma and beta are sums over the rows of a norm:  grad_gamma = sum(grad_y * u)
// with u = (x - mean) * rstd,  grad_beta = sum(grad_y).
//
// The limit is memory: x and grad_y are read once. 8192 x 4096 of f32 are 268 MB, which an H200
// reads in 62 us at the 4.3 TB/s of its copies; expected are 75 us, with the second kernel.
#include "backends/cuda/kernels/norm.cuh"

namespace bp::cuda {
namespace {

constexpr uint32_t kSumWarps = kRowThreads / kWarpSize;

// Computes the sums of one chunk of rows. A lane has kVector columns, which it loads at once, and
// the warps share the rows.
template <typename T, bool kIsCentered, int kVector>
__global__ void __launch_bounds__(kRowThreads) norm_sums_kernel(NormSumsPlan plan) {
  using C = Compute<T>;
  constexpr uint32_t kColumns = kWarpSize * kVector;
  constexpr uint32_t kRows = kVector == 1 ? 4 : 2;  // The rows whose loads are under way.
  __shared__ C parts[2][kSumWarps][kColumns];
  const uint32_t lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const uint32_t first = blockIdx.x * kColumns, column = first + lane * kVector;
  const uint32_t begin = blockIdx.y * plan.chunk;
  const uint32_t end = plan.rows - begin < plan.chunk ? plan.rows : begin + plan.chunk;
  LongSum<C> sum_gu[kVector], sum_g[kVector];
  for (uint32_t row = begin + warp; column < plan.count && row < end; row += kRows * kSumWarps) {
    Vec<T, kVector> g[kRows], x[kRows];
    C rstd[kRows], mean[kRows];
    BP_UNROLL
    for (uint32_t n = 0; n < kRows; ++n) {
      const uint32_t from = row + n * kSumWarps < end ? row + n * kSumWarps : row;
      g[n] = plan.grad_y.load<kVector>(plan.grad_y.row<T>(from), column);
      x[n] = plan.x.load<kVector>(plan.x.row<T>(from), column);
      rstd[n] = *plan.rstd.row<C>(from);
      mean[n] = kIsCentered ? *plan.mean.tensor.row<C>(from) : C{0};
    }
    BP_UNROLL
    for (uint32_t n = 0; n < kRows; ++n) {
      if (row + n * kSumWarps >= end) break;
      BP_UNROLL
      for (int k = 0; k < kVector; ++k) {
        const C gradient = widen(g[n].at[k]);
        sum_gu[k].add(gradient * ((widen(x[n].at[k]) - mean[n]) * rstd[n]));
        sum_g[k].add(gradient);
      }
    }
  }
  BP_UNROLL
  for (int k = 0; k < kVector; ++k) {
    parts[0][warp][lane * kVector + k] = sum_gu[k].total();
    parts[1][warp][lane * kVector + k] = sum_g[k].total();
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < 2 * kColumns; i += kRowThreads) {
    const uint32_t which = i / kColumns, at = i % kColumns;
    if (first + at >= plan.count) continue;
    C sum = parts[which][0][at];
    BP_UNROLL
    for (uint32_t n = 1; n < kSumWarps; ++n) sum += parts[which][n][at];
    static_cast<C*>(plan.parts)[(uint64_t{blockIdx.y} * 2 + which) * plan.count + first + at] = sum;
  }
}

// Adds the sums of the chunks in an order that depends on their number alone, and rounds once. A
// lane has a column, and the warps share the chunks.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) norm_combine_kernel(NormSumsPlan plan) {
  using C = Compute<T>;
  __shared__ C sums[kSumWarps][kWarpSize];
  const uint32_t lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const uint32_t column = blockIdx.x * kWarpSize + lane;
  const OptionalRows& to = blockIdx.y == 0 ? plan.grad_gamma : plan.grad_beta;
  if (!to.is_given) return;
  C sum = 0;
  if (column < plan.count) {
    const C* const parts = static_cast<const C*>(plan.parts) + column;
    for (uint32_t i = warp; i < plan.chunks; i += kSumWarps) {
      sum += parts[(uint64_t{i} * 2 + blockIdx.y) * plan.count];
    }
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= plan.count) return;
  BP_UNROLL
  for (uint32_t n = 1; n < kSumWarps; ++n) sum += sums[n][lane];
  to.tensor.row<T>(0)[to.tensor.elements.offset(column)] = narrow<T>(sum);
}

// Returns the number of chunks of rows. It depends on the extents and the dtype alone, so equal
// input gives equal bits.
int64_t chunk_count(const RowExtents& extents, int64_t size_bytes) {
  constexpr int64_t kBlocks = 2048, kLeastRows = 64;
  const int64_t columns = kWarpSize * (16 / size_bytes);
  const int64_t wanted = kBlocks / std::max<int64_t>(1, (extents.count + columns - 1) / columns);
  return std::clamp<int64_t>(extents.rows / kLeastRows, 1, std::max<int64_t>(1, wanted));
}

template <typename T, bool kIsCentered>
bp_status launch_sums(NormSumsPlan sums, const RowExtents& extents, Launch& launch) {
  const int64_t chunks = chunk_count(extents, sizeof(T));
  sums.parts = launch.workspace();
  sums.chunk = static_cast<uint32_t>(std::max<int64_t>(1, (extents.rows + chunks - 1) / chunks));
  // Rounding up may leave fewer chunks.
  sums.chunks =
      static_cast<uint32_t>(std::max<int64_t>(1, (extents.rows + sums.chunk - 1) / sums.chunk));
  constexpr int kVector = kLanes<T>;
  const bool has_vectors =
      sums.grad_y.has_vectors && sums.x.has_vectors && extents.count % kVector == 0;
  const bp_status status =
      has_vectors ? run<norm_sums_kernel<T, kIsCentered, kVector>>(
                        launch, dim3(blocks_for(extents.count, kWarpSize * kVector), sums.chunks),
                        kRowThreads, 0, sums)
                  : run<norm_sums_kernel<T, kIsCentered, 1>>(
                        launch, dim3(blocks_for(extents.count, kWarpSize), sums.chunks),
                        kRowThreads, 0, sums);
  if (status != BP_OK) return status;
  return run<norm_combine_kernel<T>>(launch, dim3(blocks_for(extents.count, kWarpSize), 2),
                                     kRowThreads, 0, sums);
}

}  // namespace

bp_status submit_norm_sums(NormSumsPlan sums, const RowExtents& extents, bp_dtype dtype,
                           bool is_centered, Launch& launch) {
  if (!sums.grad_gamma.is_given && !sums.grad_beta.is_given) return BP_OK;
  return with_float(dtype, [&]<typename T>(T) {
    return is_centered ? launch_sums<T, true>(sums, extents, launch)
                       : launch_sums<T, false>(sums, extents, launch);
  });
}

uint64_t norm_sums_size_bytes(const RowExtents& extents, bp_dtype dtype) {
  const uint64_t sum_bytes = dtype == BP_F64 ? sizeof(double) : sizeof(float);
  const int64_t chunks = chunk_count(extents, dtype_size_bytes(dtype));
  return static_cast<uint64_t>(chunks * 2 * extents.count) * sum_bytes;
}

}  // namespace bp::cuda
