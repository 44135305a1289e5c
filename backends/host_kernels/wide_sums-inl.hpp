// Sums of elements in memory, or of a map of them, which are kept in f64 for every dtype. The
// reductions that add use them. The error does not grow with the number of elements.
//
// If f32 has enough digits, groups of eight vectors are added in f32 first, as a tree, and only
// their sum is widened. When every vector was widened, rows in a last-level cache took 1.6 times as
// long. A group that overflows is added in f64 instead.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_WIDE_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_WIDE_SUMS_INL_HPP
#undef BACKPLANE_CPU_WIDE_SUMS_INL_HPP
#else
#define BACKPLANE_CPU_WIDE_SUMS_INL_HPP
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backends/host_kernels/lanes-inl.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kPageBytes = 4096;

// The type in which a sum of T is kept. Integers are summed as unsigned ones, whose overflow is
// defined.
template <typename T>
using SumOf = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

// Returns mapped elements as f64. The map is computed in Compute<T>.
template <class D, typename T, class Map>
HWY_INLINE hn::Vec<D> load_wide(D d, const T* x, const Map& map) {
  if constexpr (std::is_same_v<T, double>) {
    return map(d, hn::LoadU(d, x));
  } else {
    const hn::Rebind<float, D> narrow_d;
    return hn::PromoteTo(d, map(narrow_d, load_lanes(narrow_d, x)));
  }
}

// Stores a sum, rounded once. A sum of integers is kept as an unsigned number.
template <typename Y, typename A>
HWY_INLINE void store_wide(A sum, std::byte* to) {
  using Signed = std::conditional_t<std::is_same_v<A, uint64_t>, int64_t, A>;
  const auto value = static_cast<Signed>(sum);
  if constexpr (kIsNarrow<Y>) {
    *reinterpret_cast<Y*>(to) = narrow<Y>(round_to_odd(value));
  } else {
    *reinterpret_cast<Y*>(to) = static_cast<Y>(value);
  }
}

// The order in which the vectors of a row are read. A row of a few pages is read from its beginning
// to its end, as the hardware prefetcher expects. A longer row is read in four quarters, because
// memory serves several streams faster than one.
struct RowOrder {
  RowOrder(int64_t n, int64_t size_bytes, int64_t lanes, int64_t group_size)
      : is_split(n * size_bytes >= kSplitBytes) {
    const int64_t quarter = n / (group_size * lanes) * (group_size / 4) * lanes;
    end = is_split ? quarter : 4 * quarter;
    stride = is_split ? quarter : group_size / 4 * lanes;
    step = is_split ? group_size / 4 * lanes : group_size * lanes;
  }

  static constexpr int64_t kSplitBytes = 4 * kPageBytes;
  bool is_split;
  int64_t end;     // Groups begin in [0, end), `step` elements apart.
  int64_t step;    // The distance of the groups.
  int64_t stride;  // The distance of the four runs of a group.
};

template <typename T, class Map = Itself>
SumOf<T> sum_of_row(const T* x, int64_t n, const Map& map = {}) {
  int64_t i = 0;
  SumOf<T> sum = 0;
  if constexpr (!std::is_integral_v<T>) {
    const hn::ScalableTag<double> d;
    const RowOrder order(n, sizeof(T), static_cast<int64_t>(hn::Lanes(d)), 4);
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (; i < order.end; i += order.step) {
      s0 = hn::Add(s0, load_wide(d, x + i, map));
      s1 = hn::Add(s1, load_wide(d, x + i + order.stride, map));
      s2 = hn::Add(s2, load_wide(d, x + i + 2 * order.stride, map));
      s3 = hn::Add(s3, load_wide(d, x + i + 3 * order.stride, map));
    }
    i = order.is_split ? 4 * order.end : order.end;
    sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  }
  for (; i < n; ++i) sum += static_cast<SumOf<T>>(map_one(map, widen(x[i])));
  return sum;
}

// The number of f32 vectors that are added before the sum is widened.
constexpr int kGroupSize = 8;

using GroupTag = hn::ScalableTag<float>;
using GroupVector = hn::Vec<GroupTag>;

// Returns the sum of kGroupSize mapped vectors in four runs of two. The arguments give the
// distances between runs and between elements.
template <typename T, class Map>
HWY_INLINE GroupVector sum_of_group(const T* x, int64_t run_stride, int64_t stride,
                                    const Map& map) {
  const auto run = [&](int64_t k) HWY_ATTR {
    const T* const from = x + k * run_stride;
    return hn::Add(map(GroupTag(), load_lanes(GroupTag(), from)),
                   map(GroupTag(), load_lanes(GroupTag(), from + stride)));
  };
  return hn::Add(hn::Add(run(0), run(1)), hn::Add(run(2), run(3)));
}

// Prefetches the lines of four runs, `run_stride` elements apart, the given number of bytes further
// on. There may be no memory there.
template <typename T>
HWY_INLINE void prefetch_group(const T* x, int64_t ahead_bytes, int64_t run_stride) {
  const auto from = reinterpret_cast<uintptr_t>(x) + static_cast<uintptr_t>(ahead_bytes);
  for (int64_t k = 0; k < 4; ++k) {
    const auto offset = static_cast<uintptr_t>(k * run_stride) * sizeof(T);
    hwy::Prefetch(reinterpret_cast<const T*>(from + offset));
  }
}

// Calls take(i, v) for the f64 vectors of which `group` consists. i counts elements.
template <class Take>
HWY_INLINE void for_each_wide(GroupVector group, const Take& take) {
  const hn::ScalableTag<double> d;
  HWY_ALIGN float elements[hn::MaxLanes(GroupTag())];
  hn::Store(group, GroupTag(), elements);
  for (size_t i = 0; i < hn::Lanes(GroupTag()); i += hn::Lanes(d)) {
    take(static_cast<int64_t>(i), load_wide(d, elements + i, Itself()));
  }
}

template <typename T, class Map = Itself>
double sum_of_row_by_groups(const T* x, int64_t n, const Map& map = {}) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(GroupTag()));
  const RowOrder order(n, sizeof(T), lanes, kGroupSize);
  auto s0 = hn::Zero(d), s1 = s0;
  for (int64_t i = 0; i < order.end; i += order.step) {
    // The hardware prefetcher stops at the end of a page, where the next row often begins.
    if (!order.is_split) prefetch_group(x + i, kPageBytes, order.stride);
    const GroupVector group = sum_of_group(x + i, order.stride, lanes, map);
    for_each_wide(group, [&](int64_t at, auto v)
                             HWY_ATTR { (at == 0 ? s0 : s1) = hn::Add(at == 0 ? s0 : s1, v); });
  }
  const double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
  if (!std::isfinite(sum)) return sum_of_row(x, n, map);
  const int64_t done = order.is_split ? 4 * order.end : order.end;
  return sum + sum_of_row(x + done, n - done, map);
}

// Adds kGroupSize rows of dense columns to the accumulators of as many columns as are whole
// vectors. Returns the number of these columns.
template <typename T, class Map>
int64_t take_group(double* HWY_RESTRICT a, const T* x, int64_t row_stride, int64_t n,
                   const Map& columns) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(GroupTag()));
  const auto infinity = hn::Set(GroupTag(), std::numeric_limits<float>::infinity());
  // Several rows in one page are more streams than the hardware prefetcher can follow.
  const int64_t stride_bytes = row_stride * static_cast<int64_t>(sizeof(T));
  const bool is_close = stride_bytes < kPageBytes;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto take = [&](int64_t at, auto v) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, a + i + at), v), d, a + i + at);
    };
    if (is_close) {
      prefetch_group(x + i, kGroupSize * stride_bytes, 2 * row_stride);
      prefetch_group(x + i, (kGroupSize + 1) * stride_bytes, 2 * row_stride);
    }
    const auto map = columns.at(i);
    const GroupVector group = sum_of_group(x + i, 2 * row_stride, row_stride, map);
    if (HWY_LIKELY(hn::AllTrue(GroupTag(), hn::Lt(hn::Abs(group), infinity)))) {
      for_each_wide(group, take);
    } else {
      for (int row = 0; row < kGroupSize; ++row) {
        for_each_wide(map(GroupTag(), load_lanes(GroupTag(), x + i + row * row_stride)), take);
      }
    }
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_WIDE_SUMS_INL_HPP
