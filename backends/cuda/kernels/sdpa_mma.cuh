// Tiles of attention for tensor cores: rows of f16 or bf16 in shared memory, as sdpa_mma.cu has
// them.
//
// A row of a tile has kWidth elements, in units of 16 bytes. Row r keeps unit u at u ^ (r % 8), so
// that eight rows of a column of units lie in eight different banks. Columns from the width of the
// tensor on are zeros, and so are rows behind the last one.
#pragma once

#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/sdpa.cuh"

namespace bp::cuda {

struct MmaPlan {
  Attention a;
  View4 y, lse;
  float slope = 0;  // The scale of scores whose exponentials have the base 2.
};

constexpr uint32_t kMmaWarps = 4, kMmaThreads = kMmaWarps * kWarpSize;
constexpr uint32_t kWarpRows = 32;  // The rows of a warp, in two matrices.
constexpr uint32_t kBlockRows = kMmaWarps * kWarpRows;
constexpr uint32_t kUnit = 8;  // The elements of 16 bytes.

template <int kWidth>
constexpr uint32_t kRowBytes = kWidth * 2;

// The keys of a tile, as many as the registers hold.
template <int kWidth>
constexpr uint32_t kTileKeys = kWidth > 64 ? 48 : 64;

// The place of a lane in a matrix of results.
__device__ __forceinline__ uint32_t lane_row() { return tile_lane() / 4; }
__device__ __forceinline__ uint32_t lane_column() { return tile_lane() % 4 * 2; }

// Begins to copy kRows rows of a tile. row_at(i) is where row i begins, or NULL. `any` is a pointer
// to global memory.
template <int kWidth, uint32_t kRows, typename T, class RowAt>
__device__ __forceinline__ void copy_rows(SharedAddress to, uint32_t width, const T* any,
                                          const RowAt& row_at) {
  constexpr uint32_t kUnits = kWidth / kUnit, kStep = kMmaThreads / kUnits;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);
  const uint32_t thread = hidden(threadIdx.x);  // Else the offsets of all rows stay in registers.
  const uint32_t unit = thread % kUnits, first = thread / kUnits;
  const SharedAddress place = to + first * kRowBytes<kWidth> + (unit ^ (first % 8)) * 16;
  BP_UNROLL
  for (uint32_t i = 0; i < kRows; i += kStep) {
    const T* const row = row_at(first + i);
    const bool is_there = row != nullptr && unit * kUnit < width;
    copy_async(place + i * kRowBytes<kWidth>, is_there ? row + unit * kUnit : any, is_there);
  }
}

// The places from which a lane loads matrices, those of 16 rows by 16 columns of a tile at once.
template <int kWidth>
class MatrixAt {
 public:
  static constexpr uint32_t kNextBytes = 16 * kRowBytes<kWidth>;  // From 16 rows to the next ones.

  // If `is_by_columns` is true, the four matrices of a load are in column-major order.
  __device__ MatrixAt(SharedAddress tile, bool is_by_columns) {
    const uint32_t lane = tile_lane(), low = lane / 8 % 2, high = lane / 16;
    const uint32_t row = lane % 8 + (is_by_columns ? low : high) * 8;
    row_ = tile + row * kRowBytes<kWidth>;
    turn_ = (lane % 8 ^ (is_by_columns ? high : low)) * 16;
  }
  // Of the first 16 rows, and the columns from 16 * column on.
  __device__ __forceinline__ SharedAddress operator()(uint32_t column) const {
    return row_ + (hidden(turn_) ^ column * 32);
  }

 private:
  SharedAddress row_;
  uint32_t turn_;
};

// Return how many keys the rows [first, first + count) of a problem see at most, and at least. Rows
// of several heads include a last and a first query.
__device__ __forceinline__ uint32_t most_keys(const Attention& a, uint32_t first, uint32_t count) {
  if (first >= a.rows) return 0;
  const uint32_t last = static_cast<uint32_t>(first + count < a.rows ? first + count : a.rows) - 1;
  const bool is_one_head = a.by_queries.divide(first) == a.by_queries.divide(last);
  return static_cast<uint32_t>(is_one_head ? key_limit(a, last) : a.keys);
}
__device__ __forceinline__ uint32_t least_keys(const Attention& a, uint32_t first, uint32_t count) {
  if (first >= a.rows) return 0;
  const uint32_t last = static_cast<uint32_t>(first + count < a.rows ? first + count : a.rows) - 1;
  const bool is_one_head = a.by_queries.divide(first) == a.by_queries.divide(last);
  return static_cast<uint32_t>(key_limit(a, is_one_head ? first : 0));
}

// ---- Rows with values that are not finite -------------------------------------------------------

template <typename T>
__device__ float score_of(const Attention& a, const T* q, const T* k) {
  float sum = 0;
  for (uint32_t i = 0; i < a.width; ++i) sum += widen(q[i]) * widen(k[i]);
  return sum * static_cast<float>(a.scale);
}

// Computes one row by the warp, and reads only what the row sees. Lanes have keys, then columns.
template <typename T>
__device__ void compute_row(const MmaPlan& plan, const Problem& problem, uint32_t row) {
  const Attention& a = plan.a;
  const T* const q = reinterpret_cast<const T*>(a.q.data) + problem.row(a, a.q, row);
  const auto keys = static_cast<uint32_t>(key_limit(a, row));
  const auto score = [&](uint32_t key) {
    return score_of(a, q, reinterpret_cast<const T*>(a.k.data) + problem.key(a.k, key));
  };
  float peak = -infinity<float>(), total = 0;
  for (uint32_t key = tile_lane(); key < keys; key += kWarpSize) peak = Larger()(peak, score(key));
  peak = warp_reduce(peak, Larger());
  const float shift = peak == -infinity<float>() ? 0.0f : peak;
  for (uint32_t key = tile_lane(); key < keys; key += kWarpSize) total += exp(score(key) - shift);
  total = warp_reduce(total, Plus());
  const bool is_blind = total == 0;
  constexpr int kColumns = 4;
  float sums[kColumns] = {};
  for (uint32_t first = 0; first < keys && !is_blind; first += kWarpSize) {
    const uint32_t mine = first + tile_lane();
    const float weight = mine < keys ? exp(score(mine) - shift) / total : 0.0f;
    for (uint32_t j = 0; j < kWarpSize && first + j < keys; ++j) {
      const float its_weight = __shfl_sync(kAllLanes, weight, static_cast<int>(j));
      const T* const v = reinterpret_cast<const T*>(a.v.data) + problem.key(a.v, first + j);
      for (uint32_t c = 0; c < kColumns; ++c) {
        const uint32_t column = c * kWarpSize + tile_lane();
        if (column < a.value_width) sums[c] += its_weight * widen(v[column]);
      }
    }
  }
  T* const y = reinterpret_cast<T*>(plan.y.data) + problem.row(a, plan.y, row);
  for (uint32_t c = 0; c < kColumns; ++c) {
    const uint32_t column = c * kWarpSize + tile_lane();
    if (column < a.value_width) y[column] = narrow<T>(sums[c]);
  }
  if (plan.lse.data != nullptr && tile_lane() == 0) {
    float* const lse = reinterpret_cast<float*>(plan.lse.data) + problem.row(a, plan.lse, row);
    *lse = is_blind ? -infinity<float>() : shift + log(total);
  }
}

// ---- On the host --------------------------------------------------------------------------------

// Returns whether all rows of a tensor of 4 axes, with elements of 16 bits, are dense and begin at
// multiples of 16 bytes.
inline bool has_aligned_rows(const bp_tensor& tensor) {
  for (int axis = 0; axis < 3; ++axis) {
    if (tensor.shape[axis] > 1 && tensor.strides[axis] % kUnit != 0) return false;
  }
  return tensor.strides[3] == 1 && reinterpret_cast<uint64_t>(data<std::byte>(tensor)) % 16 == 0;
}

}  // namespace bp::cuda
