// The products of attention for a few rows of queries. Vectors lie along the width of keys and
// values, which are read in their own dtype.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SDPA_FEW_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SDPA_FEW_INL_HPP
#undef BACKPLANE_CPU_SDPA_FEW_INL_HPP
#else
#define BACKPLANE_CPU_SDPA_FEW_INL_HPP
#endif

#include "backends/host_kernels/sdpa_tiles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// So many rows and keys have their sums in registers, beside a vector of each key.
constexpr int kRowsAtOnce = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
constexpr int kKeysAtOnce = 4;

// Calls fn.operator()<kRows>(first) for parts of the rows.
template <typename Fn>
HWY_INLINE void for_few_rows(int64_t rows, const Fn& fn) {
  int64_t r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce) fn.template operator()<kRowsAtOnce>(r);
  for (; r + 2 <= rows; r += 2) fn.template operator()<2>(r);
  if (r < rows) fn.template operator()<1>(r);
}

#if HWY_TARGET != HWY_SCALAR
// Adds the blocks of 128 bits of a vector.
template <class D>
HWY_INLINE auto sum_of_blocks(D d, hn::Vec<D> v) {
  static_cast<void>(d);
  if constexpr (hn::MaxLanes(D()) <= 16 / sizeof(hn::TFromD<D>)) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Writes the sums of the lanes of four vectors of f32.
template <class D>
HWY_INLINE void store_four_sums(D d, const hn::Vec<D> (&v)[kKeysAtOnce], float* to) {
  const hn::RepartitionToWide<D> pairs;
  const auto v01 = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
  const auto v23 = hn::BitCast(
      pairs, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
  const auto sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, v01, v23)),
                            hn::BitCast(d, hn::InterleaveUpper(pairs, v01, v23)));
  hn::StoreU(sum_of_blocks(d, sums), hn::CappedTag<float, 4>(), to);
}
#endif

// Writes the sums of the lanes of four vectors.
template <class D>
HWY_INLINE void store_lane_sums(D d, const hn::Vec<D> (&v)[kKeysAtOnce], hn::TFromD<D>* to) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(hn::TFromD<D>) == 4) return store_four_sums(d, v, to);
#endif
  for (int j = 0; j < kKeysAtOnce; ++j) to[j] = hn::GetLane(hn::SumOfLanes(d, v[j]));
}

// Computes the products of kRows rows of q by kKeys keys. Rows of q end with zeros.
template <int kRows, int kKeys, typename T, typename Sum>
HWY_INLINE void multiply_keys(const Sum* HWY_RESTRICT q, int64_t q_stride, const T* k,
                              int64_t k_stride, int64_t width,
                              hn::Vec<TileTag<Sum>> (&sums)[kRows][kKeysAtOnce]) {
  const TileTag<Sum> d;
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kKeysAtOnce; ++j) sums[r][j] = hn::Zero(d);
  }
  int64_t c = 0;
  for (; c + kTileLanes<Sum> <= width; c += kTileLanes<Sum>) {
    hn::Vec<TileTag<Sum>> keys[kKeys];
    for (int j = 0; j < kKeys; ++j) keys[j] = load_lanes(d, k + j * k_stride + c);
    for (int r = 0; r < kRows; ++r) {
      const auto row = hn::LoadU(d, q + r * q_stride + c);
      for (int j = 0; j < kKeys; ++j) sums[r][j] = hn::MulAdd(row, keys[j], sums[r][j]);
    }
  }
  if (c == width) return;
  for (int j = 0; j < kKeys; ++j) {
    const auto key = load_lanes_n(d, k + j * k_stride + c, static_cast<size_t>(width - c));
    for (int r = 0; r < kRows; ++r) {
      sums[r][j] = hn::MulAdd(hn::LoadU(d, q + r * q_stride + c), key, sums[r][j]);
    }
  }
}

// Writes the products of kRows rows by `count` keys to rows of scores.
template <int kRows, typename T, typename Sum>
HWY_NOINLINE void dot_keys(const Sum* q, int64_t q_stride, const T* k, int64_t k_stride,
                           int64_t count, int64_t width, Sum* scores) {
  const TileTag<Sum> d;
  hn::Vec<TileTag<Sum>> sums[kRows][kKeysAtOnce];
  int64_t j = 0;
  for (; j + kKeysAtOnce <= count; j += kKeysAtOnce) {
    multiply_keys<kRows, kKeysAtOnce>(q, q_stride, k + j * k_stride, k_stride, width, sums);
    for (int r = 0; r < kRows; ++r) store_lane_sums(d, sums[r], scores + r * kKeyBlock + j);
  }
  for (; j < count; ++j) {
    multiply_keys<kRows, 1>(q, q_stride, k + j * k_stride, k_stride, width, sums);
    for (int r = 0; r < kRows; ++r) {
      scores[r * kKeyBlock + j] = hn::GetLane(hn::SumOfLanes(d, sums[r][0]));
    }
  }
}

// Computes y += p v for kRows rows and `columns` columns, of which there are up to kVectors
// vectors.
template <int kRows, int kVectors, typename T, typename Sum>
HWY_INLINE void add_columns(const Sum* HWY_RESTRICT p, const T* v, int64_t v_stride, int64_t count,
                            int64_t columns, Sum* HWY_RESTRICT y, int64_t y_stride) {
  const TileTag<Sum> d;
  constexpr int64_t kLanes = kTileLanes<Sum>;
  hn::Vec<TileTag<Sum>> sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) sums[r][i] = hn::Zero(d);
  }
  for (int64_t j = 0; j < count; ++j, v += v_stride) {
    hn::Vec<TileTag<Sum>> values[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      values[i] = columns >= kVectors * kLanes
                      ? load_lanes(d, v + i * kLanes)
                      : load_lanes_n(d, v + i * kLanes, static_cast<size_t>(columns));
    }
    for (int r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(d, p[r * kKeyBlock + j]);
      for (int i = 0; i < kVectors; ++i) sums[r][i] = hn::MulAdd(weight, values[i], sums[r][i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) {
      Sum* const at = y + r * y_stride + i * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, at), sums[r][i]), d, at);
    }
  }
}

// Computes y += p v for kRows rows and `count` keys. Rows of p are kKeyBlock elements apart, and
// rows of y have whole vectors.
template <int kRows, typename T, typename Sum>
HWY_NOINLINE void add_values(const Sum* p, const T* v, int64_t v_stride, int64_t count,
                             int64_t width, Sum* y, int64_t y_stride) {
  constexpr int64_t kLanes = kTileLanes<Sum>;
  constexpr int kVectors = kRows == 1 ? 2 * kRowsAtOnce : kRowsAtOnce;
  int64_t c = 0;
  for (; c + kVectors * kLanes <= width; c += kVectors * kLanes) {
    add_columns<kRows, kVectors>(p, v + c, v_stride, count, width - c, y + c, y_stride);
  }
  for (; c < width; c += kLanes) {
    add_columns<kRows, 1>(p, v + c, v_stride, count, width - c, y + c, y_stride);
  }
}

template <typename Sum>
HWY_INLINE void scale_line(Sum factor, int64_t count, Sum* line) {
  for (int64_t c = 0; c < count; ++c) line[c] *= factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SDPA_FEW_INL_HPP
