// Tiles of attention for tensor cores: rows of f16 or bf16 in shared memory, as sdpa_mma.cu has
// them.
//
// A row of a tile has kWidth elements, in units of 16 bytes. Row r keeps unit u at u ^ (r % 8), so
// that eight rows of a column of units lie in eight different banks. Columns from the width of the
// tensor on are zeros, and so are rows behind the last one.
#pragma once

#include <algorithm>
#include <cmath>
#include <exception>
#include <initializer_list>

#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/sdpa.cuh"
#include "backends/cuda/options.hpp"

namespace bp::cuda {

constexpr uint32_t kMmaWarps = 4, kMmaThreads = kMmaWarps * kWarpSize;
constexpr uint32_t kWarpRows = 32;  // The rows of a warp, in two matrices.
constexpr uint32_t kBlockRows = kMmaWarps * kWarpRows;
constexpr uint32_t kUnit = 8;  // The elements of 16 bytes.
constexpr float kLogOf2 = 0.693147180559945309f;
constexpr double kLog2OfE = 1.44269504088896340736;

template <int kWidth>
constexpr uint32_t kRowBytes = kWidth * 2;

// The place of a lane in a matrix of results.
__device__ __forceinline__ uint32_t lane_row() { return tile_lane() / 4; }
__device__ __forceinline__ uint32_t lane_column() { return tile_lane() % 4 * 2; }

// ---- Tiles in shared memory ---------------------------------------------------------------------

// `count` rows of a tensor that lie one after the other.
template <typename T>
struct EvenRows {
  const T* begin;
  int64_t stride;
  uint32_t count;
};

// Begins to copy up to kRows rows to a tile, by kThreads threads. Rows behind the last one become
// zeros.
template <int kWidth, uint32_t kRows, uint32_t kThreads = kMmaThreads, typename T>
__device__ __forceinline__ void copy_even_rows(SharedAddress to, uint32_t width,
                                               const EvenRows<T>& rows) {
  constexpr uint32_t kUnits = kWidth / kUnit, kStep = kThreads / kUnits;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);
  const uint32_t thread = hidden(threadIdx.x);  // Else the offsets of all rows stay in registers.
  const uint32_t unit = thread % kUnits, first = thread / kUnits;
  const SharedAddress place = to + first * kRowBytes<kWidth> + (unit ^ (first % 8)) * 16;
  const T* from = rows.begin + unit * kUnit + first * rows.stride;
  BP_UNROLL
  for (uint32_t i = 0; i < kRows; i += kStep) {
    copy_async(place + i * kRowBytes<kWidth>, from, first + i < rows.count && unit * kUnit < width);
    from += kStep * rows.stride;
  }
}

// Begins to copy the rows of a problem from `first` on, which may be rows of several heads.
template <int kWidth, uint32_t kRows, uint32_t kThreads, typename T>
__device__ __forceinline__ void copy_rows(SharedAddress to, const Attention& a,
                                          const Problem& problem, const View4& view,
                                          uint32_t first) {
  const T* const all = reinterpret_cast<const T*>(view.data);
  const auto rows = static_cast<uint32_t>(a.rows);
  const uint32_t count = rows - first < kRows ? rows - first : kRows;
  const uint32_t member = a.by_queries.divide(first);
  if (member == a.by_queries.divide(first + count - 1)) {
    const EvenRows<T> even{all + problem.row(a, view, first), view.strides[2], count};
    return copy_even_rows<kWidth, kRows, kThreads>(to, a.width, even);
  }
  BP_NO_UNROLL
  for (uint32_t i = threadIdx.x; i < kRows * (kWidth / kUnit); i += kThreads) {
    const uint32_t row = i / (kWidth / kUnit), unit = i % (kWidth / kUnit);
    copy_async(to + row * kRowBytes<kWidth> + (unit ^ (row % 8)) * 16,
               all + problem.row(a, view, first + row) + unit * kUnit,
               row < count && unit * kUnit < a.width);
  }
}

// Begins to copy the keys, or values, of a problem from `first` on.
template <int kWidth, uint32_t kKeys, uint32_t kThreads, typename T>
__device__ __forceinline__ void copy_keys(SharedAddress to, const Attention& a,
                                          const Problem& problem, const View4& view,
                                          uint32_t first) {
  Problem here = problem;  // Else the address of key 0 stays in registers.
  here.batch = hidden(here.batch);
  here.key_head = hidden(here.key_head);
  const T* const begin = reinterpret_cast<const T*>(view.data) + here.key(view, first);
  const EvenRows<T> keys{begin, view.strides[2], static_cast<uint32_t>(a.keys) - first};
  copy_even_rows<kWidth, kKeys, kThreads>(to, a.width, keys);
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

// ---- Products of a warp -------------------------------------------------------------------------

// Results of 32 rows by kColumns columns. Of a lane, [i][n] belongs to the rows 16 * i +
// lane_row(), with elements 0 and 1, and 8 below, with elements 2 and 3. Both have columns 8 * n +
// lane_column() and the next one.
template <uint32_t kColumns>
struct WarpTile {
  float at[2][kColumns / 8][4] = {};
};

// Adds to `results` the products of 32 rows of the left tile and kColumns rows of the right one.
template <typename T, int kWidth, uint32_t kColumns>
__device__ __forceinline__ void multiply_rows(const MatrixAt<kWidth>& left,
                                              const MatrixAt<kWidth>& right,
                                              WarpTile<kColumns>& results) {
  BP_UNROLL_BY_2  // With all columns at once the registers do not suffice.
      for (uint32_t c = 0; c < kWidth / 16; ++c) {
    const SharedAddress left_place = left(c), right_place = right(c);
    uint32_t rows[2][4];
    BP_UNROLL
    for (uint32_t i = 0; i < 2; ++i) load_matrices(rows[i], left_place + i * left.kNextBytes);
    BP_UNROLL
    for (uint32_t n = 0; n < kColumns / 16; ++n) {
      uint32_t columns[4];
      load_matrices(columns, right_place + n * right.kNextBytes);
      BP_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        mma<T>(results.at[i][2 * n], rows[i], columns[0], columns[1]);
        mma<T>(results.at[i][2 * n + 1], rows[i], columns[2], columns[3]);
      }
    }
  }
}

// Results, rounded to T, as the left factor of a product: 16 rows by 16 columns in each [i][n].
template <uint32_t kColumns>
struct WarpFactor {
  uint32_t at[2][kColumns / 16][4];
};

template <typename T, uint32_t kColumns>
__device__ __forceinline__ void round_tile(const WarpTile<kColumns>& tile,
                                           WarpFactor<kColumns>& to) {
  BP_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    BP_UNROLL
    for (uint32_t p = 0; p < kColumns / 4; ++p) {  // Pairs of a row, and of the row 8 below.
      const float* const pair = &tile.at[i][p / 2][p % 2 * 2];
      to.at[i][p / 4][p % 4] = pack<T>(pair[0], pair[1]);
    }
  }
}

// Multiplies `left` by kColumns rows of a tile. Calls add(sum, product, i, h) for each element of
// the sums, where row 16 * i + 8 * h + lane_row() has it. Tensor cores truncate their sums, so the
// sums of a tile begin at 0, and `add` rounds.
template <typename T, int kWidth, uint32_t kColumns, class Add>
__device__ __forceinline__ void add_products(const WarpFactor<kColumns>& left,
                                             const MatrixAt<kWidth>& right,
                                             float (&sums)[2][kWidth / 8][4], const Add& add) {
  BP_UNROLL
  for (uint32_t c = 0; c < kWidth / 16; ++c) {
    const SharedAddress place = right(c);
    float tile[2][2][4] = {};
    BP_UNROLL
    for (uint32_t n = 0; n < kColumns / 16; ++n) {
      uint32_t values[4];
      load_transposed(values, place + n * right.kNextBytes);
      BP_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        mma<T>(tile[j / 2][j % 2], left.at[j / 2][n], values[j % 2 * 2], values[j % 2 * 2 + 1]);
      }
    }
    BP_UNROLL
    for (uint32_t e = 0; e < 16; ++e) {
      const uint32_t i = e / 8, half = e / 4 % 2;
      add(sums[i][2 * c + half][e % 4], tile[i][half][e % 4], i, e % 4 / 2);
    }
  }
}

// Returns, in every lane, whether all sums of a warp are finite.
template <uint32_t kCount>
__device__ __forceinline__ bool are_finite(const float (&sums)[2][kCount][4]) {
  float check = 0;  // It becomes NaN if a sum is not finite.
  BP_UNROLL
  for (uint32_t e = 0; e < 8 * kCount; ++e) {
    check += sums[e / 4 / kCount][e / 4 % kCount][e % 4] * 0.0f;
  }
  return warp_reduce(check, Plus()) == 0;
}

// ---- The keys that rows see ---------------------------------------------------------------------

// Of some rows: no row sees a key before any_begin or from any_limit on, and every row sees those
// from all_begin on before all_limit.
struct SeenKeys {
  uint32_t any_begin = 0, all_begin = 0, all_limit = 0, any_limit = 0;

  // Of the rows [first, first + count) of a problem. Rows of several heads include a last and a
  // first query.
  __device__ __forceinline__ SeenKeys(const Attention& a, uint32_t first, uint32_t count) {
    if (first >= a.rows) return;
    uint32_t last = static_cast<uint32_t>(first + count < a.rows ? first + count : a.rows) - 1;
    if (a.by_queries.divide(first) != a.by_queries.divide(last)) {
      first = 0;
      last = static_cast<uint32_t>(a.queries) - 1;
    }
    any_begin = static_cast<uint32_t>(key_begin(a, first));
    all_begin = static_cast<uint32_t>(key_begin(a, last));
    all_limit = static_cast<uint32_t>(key_limit(a, first));
    any_limit = static_cast<uint32_t>(key_limit(a, last));
  }
  // Return whether some row may see one of `count` keys, and whether every row sees all of them.
  __device__ __forceinline__ bool meet(uint32_t first, uint32_t count) const {
    return any_begin < first + count && any_limit > first;
  }
  __device__ __forceinline__ bool cover(uint32_t first, uint32_t count) const {
    return all_begin <= first && all_limit >= first + count;
  }
};

// Makes the scores of keys that a row does not see -inf. The tile has keys as its columns.
template <uint32_t kColumns>
__device__ __forceinline__ void hide_keys(const Attention& a, uint32_t first_row,
                                          uint32_t first_key, WarpTile<kColumns>& scores) {
  BP_UNROLL
  for (uint32_t r = 0; r < 4; ++r) {
    const uint32_t row = first_row + r * 8 + lane_row();
    const uint32_t begin = static_cast<uint32_t>(key_begin(a, row));
    const uint32_t limit = row < a.rows ? static_cast<uint32_t>(key_limit(a, row)) : 0;
    BP_UNROLL
    for (uint32_t n = 0; n < kColumns / 8; ++n) {
      BP_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t key = first_key + n * 8 + lane_column() + e;
        if (key < begin || key >= limit) scores.at[r / 2][n][r % 2 * 2 + e] = -infinity<float>();
      }
    }
  }
}

// ---- On the host --------------------------------------------------------------------------------

constexpr bp_dtype kMmaF16[] = {BP_F16}, kMmaBf16[] = {BP_BF16};

// Returns why a kernel with rounded factors does not serve a launch, or NULL.
inline bp_reason rounding_refusal(bp_launch_flags flags, const Env& env) {
  if (!env.options().rounds_weights) return "option rounded_weights is not \"yes\"";
  if ((flags & BP_LAUNCH_STRICT_F32) != 0) return "the launch forbids factors that are rounded";
  return nullptr;
}

template <typename Args, class Kernel>
bp_reason rounding_supports(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                            const void* args) noexcept {
  if ((flags & ~kKnownLaunchFlags) != 0) return "a launch flag is not known";
  try {
    const auto env = Env::find(*self, device);
    if (!env.has_value()) return "the device is not one of this backend";
    return Kernel::supports(*static_cast<const Args*>(args), flags, *env);
  } catch (const TooManyElements&) {
    return "a tensor has more elements than 64 bits can count";
  } catch (const std::exception&) {
    return "the device failed when it was asked for its limits";
  }
}

// Returns the row of a kernel with rounded factors. `Kernel` has static members
//   bp_reason supports(const Args&, bp_launch_flags, const Env&)
//   uint64_t workspace(const Args&, const Env&)
//   bp_status launch(const Args&, Launch&)
template <typename Args, class Kernel>
constexpr bp_kernel make_rounding_kernel(const char* name, uint32_t op, DtypeRows dtypes,
                                         const bp_numerics* numerics) {
  bp_kernel row = kernel_row(name, op, dtypes, BP_KERNEL_TAKES_SCALAR);  // The seed of no dropout.
  row.numerics = numerics;
  row.priority = 2;
  row = make_kernel<Args, Kernel::launch, nullptr, Kernel::workspace>(row);
  row.supports = rounding_supports<Args, Kernel>;
  return row;
}

// Returns whether all rows of a tensor of 4 axes, with elements of 16 bits, are dense and begin at
// multiples of 16 bytes.
inline bool has_aligned_rows(const bp_tensor& tensor) {
  for (int axis = 0; axis < 3; ++axis) {
    if (tensor.shape[axis] > 1 && tensor.strides[axis] % kUnit != 0) return false;
  }
  return tensor.strides[3] == 1 && reinterpret_cast<uint64_t>(data<std::byte>(tensor)) % 16 == 0;
}

// Returns the factor that makes a product of q and k an exponent of 2.
template <typename Args>
float slope_of(const Args& args) {
  return static_cast<float>(args.scale * kLog2OfE);
}

// Returns why tiles do not serve a call, or NULL. A tensor in `others` may be absent.
template <typename Args>
bp_reason tiles_support(const Args& args, std::initializer_list<const bp_tensor*> others) {
  const int64_t width = args.q->shape[3];
  if (args.mask != nullptr || args.bias != nullptr) return "there is a mask or a bias";
  if (args.softcap != 0 || args.sinks != nullptr) return "there is a soft cap or there are sinks";
  if (args.dropout_p != 0) return "there is dropout";
  if (width != args.v->shape[3]) return "the widths of keys and values differ";
  if (width < 16 || width > 128 || width % 16 != 0) {
    return "the width is not one of 16, 32, 48 and so on to 128";
  }
  if (element_count(*args.q) == 0 || element_count(*args.k) == 0) return "there are no elements";
  const auto is_aligned = [](const bp_tensor* t) { return t == nullptr || has_aligned_rows(*t); };
  const bool are_aligned = is_aligned(args.q) && is_aligned(args.k) && is_aligned(args.v) &&
                           std::all_of(others.begin(), others.end(), is_aligned);
  if (!are_aligned) return "a row is not dense, or not aligned to 16 bytes";
  const float slope = slope_of(args);
  if (!(slope > 0) || !std::isnormal(slope)) return "the scale is not a positive f32";
  return attention_supports(args);
}

}  // namespace bp::cuda
