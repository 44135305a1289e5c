// Finds the largest element for amax and argmax, and the smallest one for amin. NaN is more extreme
// than every number.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_EXTREME_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_EXTREME_INL_HPP
#undef BACKPLANE_CPU_EXTREME_INL_HPP
#else
#define BACKPLANE_CPU_EXTREME_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/host_kernels/lanes-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Which element a search wants.
enum class Extreme { kLargest, kSmallest };

// Returns the element that is more extreme. NaN is more extreme than every number, and if both are
// equal, the first stays.
template <Extreme kWanted, typename T>
HWY_INLINE T better(T best, T x) {
  const bool is_beyond = kWanted == Extreme::kLargest ? best < x : x < best;
  if constexpr (std::is_floating_point_v<T>) {
    return (is_beyond | (x != x)) ? x : best;
  } else {
    return is_beyond ? x : best;
  }
}

template <Extreme kWanted, class D>
HWY_INLINE hn::Mask<D> is_better(D, hn::Vec<D> best, hn::Vec<D> x) {
  const auto is_beyond = kWanted == Extreme::kLargest ? hn::Lt(best, x) : hn::Lt(x, best);
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    return hn::Or(is_beyond, hn::IsNaN(x));
  } else {
    return is_beyond;
  }
}

// Returns the most extreme lane. It does not take lanes one by one, because rows are short, and 64
// steps would cost more than the rest of a row.
template <Extreme kWanted, class D>
HWY_INLINE hn::TFromD<D> best_lane(D d, hn::Vec<D> v) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    const intptr_t nan = hn::FindFirstTrue(d, hn::IsNaN(v));
    if (HWY_UNLIKELY(nan >= 0)) return hn::ExtractLane(v, static_cast<size_t>(nan));
  }
  if constexpr (kWanted == Extreme::kLargest) {
    return hn::GetLane(hn::MaxOfLanes(d, v));
  } else {
    return hn::GetLane(hn::MinOfLanes(d, v));
  }
}

template <Extreme kWanted, typename T, class Map = Itself>
Compute<T> best_of_row(const T* x, int64_t n, Compute<T> best, const Map& map = {}) {
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto pick = [&](hn::Vec<decltype(d)> m, int64_t at) HWY_ATTR {
    const auto v = map(d, load_lanes(d, x + at));
    return hn::IfThenElse(is_better<kWanted>(d, m, v), v, m);
  };
  // Four quarters are read side by side, because memory serves several streams faster than one.
  const int64_t quarter = n / (4 * lanes) * lanes;
  auto m0 = hn::Set(d, best), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i < quarter; i += lanes) {
    m0 = pick(m0, i);
    m1 = pick(m1, i + quarter);
    m2 = pick(m2, i + 2 * quarter);
    m3 = pick(m3, i + 3 * quarter);
  }
  i *= 4;
  const auto either = [&](hn::Vec<decltype(d)> a, hn::Vec<decltype(d)> b)
                          HWY_ATTR { return hn::IfThenElse(is_better<kWanted>(d, a, b), b, a); };
  best = best_lane<kWanted>(d, either(either(m0, m1), either(m2, m3)));
  for (; i < n; ++i) best = better<kWanted>(best, map_one(map, widen(x[i])));
  return best;
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_EXTREME_INL_HPP
