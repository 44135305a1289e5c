// Counts of the elements for which a condition holds, for the reductions whose map is a condition.
// `any` and `all` are answers about the count. Such a row is not read further once it is decided.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_COUNTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_COUNTS_INL_HPP
#undef BACKPLANE_CPU_COUNTS_INL_HPP
#else
#define BACKPLANE_CPU_COUNTS_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/lanes-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// The combination of counts.
struct Count {
  using Accumulator = uint64_t;
  static constexpr Accumulator kStart = 0;
  static Accumulator combine(Accumulator count, Accumulator later) { return count + later; }
};

template <class Formula, class D>
HWY_INLINE hn::Mask<D> holds(D d, hn::Vec<D> v) {
  return Formula::map(d, v, hn::Zero(d));
}

template <class Formula, typename C>
HWY_INLINE uint64_t holds_one(C x) {
  const hn::CappedTag<C, 1> d;
  return hn::AllTrue(d, holds<Formula>(d, hn::Set(d, x))) ? 1 : 0;
}

// Returns whether `count` of the `seen` elements decide the result, whatever comes later.
template <class Formula>
HWY_INLINE bool is_decided(uint64_t count, int64_t seen) {
  if (Formula::kIsAny) return count != 0;
  return Formula::kIsAll && count != static_cast<uint64_t>(seen);
}

// Returns the count of n dense elements. Four quarters are read side by side, because memory serves
// several streams faster than one.
template <class Formula, typename T>
uint64_t count_of_dense(const T* x, int64_t n) {
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto count_at = [&](int64_t at) HWY_ATTR {
    return hn::CountTrue(d, holds<Formula>(d, load_lanes(d, x + at)));
  };
  const int64_t quarter = n / (4 * lanes) * lanes;
  size_t c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  int64_t i = 0;
  for (; i < quarter; i += lanes) {
    c0 += count_at(i);
    c1 += count_at(i + quarter);
    c2 += count_at(i + 2 * quarter);
    c3 += count_at(i + 3 * quarter);
  }
  uint64_t count = (c0 + c1) + (c2 + c3);
  for (i *= 4; i < n; ++i) count += holds_one<Formula>(widen(x[i]));
  return count;
}

template <class Formula, typename T>
void count_along(void* accumulator, const void*, const std::byte* x, int64_t stride, int64_t n) {
  constexpr int64_t kBlock = 16384;
  auto& total = *static_cast<uint64_t*>(accumulator);
  uint64_t count = 0;
  for (int64_t i = 0; i < n && !is_decided<Formula>(count, i);) {
    const int64_t end = std::min(n, i + kBlock);
    if (stride == sizeof(T)) {
      count += count_of_dense<Formula>(reinterpret_cast<const T*>(x) + i, end - i);
      i = end;
    }
    for (; i < end; ++i) {
      count += holds_one<Formula>(widen(*reinterpret_cast<const T*>(x + i * stride)));
    }
  }
  total += count;
}

// Counts kRows rows of dense columns. Lanes count in the width of an element, and are added to the
// counts of columns once for all rows.
template <class Formula, typename T, int kRows>
void count_across_rows(uint64_t* HWY_RESTRICT counts, const std::byte* x, int64_t row_stride,
                       int64_t n) {
  static_assert(kRows < 256, "a lane may have 8 bits");
  const ComputeTag<T> d;
  const hn::RebindToUnsigned<decltype(d)> count_d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto at = [&](int row) { return reinterpret_cast<const T*>(x + row * row_stride); };
  HWY_ALIGN hn::TFromD<decltype(count_d)> of_lanes[hn::MaxLanes(count_d)];
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto sum = hn::Zero(count_d);
    for (int row = 0; row < kRows; ++row) {
      const auto mask = hn::RebindMask(count_d, holds<Formula>(d, load_lanes(d, at(row) + i)));
      sum = hn::Sub(sum, hn::VecFromMask(count_d, mask));  // All bits of a lane are -1.
    }
    hn::Store(sum, count_d, of_lanes);
    for (int64_t k = 0; k < lanes; ++k) counts[i + k] += of_lanes[k];
  }
  for (; i < n; ++i) {
    for (int row = 0; row < kRows; ++row) counts[i] += holds_one<Formula>(widen(at(row)[i]));
  }
}

template <class Formula, typename T>
void count_across(void* accumulators, const void*, const std::byte* x, int64_t row_stride,
                  int64_t rows, int64_t stride, int64_t n) {
  auto* const counts = static_cast<uint64_t*>(accumulators);
  constexpr int kRows = 8;
  int64_t row = 0;
  if (stride == sizeof(T)) {
    const auto from = [&](int64_t first) { return x + first * row_stride; };
    for (; row + kRows <= rows; row += kRows) {
      count_across_rows<Formula, T, kRows>(counts, from(row), row_stride, n);
    }
    for (; row < rows; ++row) count_across_rows<Formula, T, 1>(counts, from(row), row_stride, n);
  }
  for (; row < rows; ++row) {
    const std::byte* const from = x + row * row_stride;
    for (int64_t i = 0; i < n; ++i) {
      counts[i] += holds_one<Formula>(widen(*reinterpret_cast<const T*>(from + i * stride)));
    }
  }
}

// Writes the results of n counts of `count` elements each: bools, or the counts as i64.
template <class Formula>
void finish_counts(const void* accumulators, const void*, std::byte* y, int64_t stride, int64_t n,
                   int64_t count) {
  const auto* const counts = static_cast<const uint64_t*>(accumulators);
  for (int64_t i = 0; i < n; ++i) {
    std::byte* const to = y + i * stride;
    if constexpr (Formula::kIsAny) {
      *reinterpret_cast<uint8_t*>(to) = counts[i] != 0 ? 1 : 0;
    } else if constexpr (Formula::kIsAll) {
      *reinterpret_cast<uint8_t*>(to) = counts[i] == static_cast<uint64_t>(count) ? 1 : 0;
    } else {
      *reinterpret_cast<int64_t*>(to) = static_cast<int64_t>(counts[i]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_COUNTS_INL_HPP
