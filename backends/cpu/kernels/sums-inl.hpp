// Sums over a row of elements in memory, whatever their dtype.
//
// Included once per Highway target, by sources that foreach_target.h compiles.
#if defined(BACKPLANE_CPU_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SUMS_INL_HPP
#undef BACKPLANE_CPU_SUMS_INL_HPP
#else
#define BACKPLANE_CPU_SUMS_INL_HPP
#endif

#include <cstdint>
#include <type_traits>

#include "backends/cpu/kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Loads and stores the elements of rows at one place, as many as there are lanes.
template <typename T>
struct FullLanes {
  int64_t at;
  template <typename From>
  HWY_INLINE auto load(const From* row) const {
    return load_lanes(ComputeTag<T>(), row + at);
  }
  template <typename To>
  HWY_INLINE void store(hn::Vec<ComputeTag<T>> v, To* row) const {
    store_lanes(v, ComputeTag<T>(), row + at);
  }
  HWY_INLINE auto clear_rest(hn::Vec<ComputeTag<T>> v) const { return v; }
  HWY_INLINE auto fill_rest(hn::Vec<ComputeTag<T>> v, hn::Vec<ComputeTag<T>>) const { return v; }
};

// The same for the last elements, fewer than there are lanes.
template <typename T>
struct LastLanes {
  int64_t at;
  size_t count;
  template <typename From>
  HWY_INLINE auto load(const From* row) const {
    return load_lanes_n(ComputeTag<T>(), row + at, count);
  }
  template <typename To>
  HWY_INLINE void store(hn::Vec<ComputeTag<T>> v, To* row) const {
    store_lanes_n(v, ComputeTag<T>(), row + at, count);
  }
  HWY_INLINE auto clear_rest(hn::Vec<ComputeTag<T>> v) const {
    const ComputeTag<T> d;
    return hn::IfThenElseZero(hn::FirstN(d, count), v);
  }
  HWY_INLINE auto fill_rest(hn::Vec<ComputeTag<T>> v, hn::Vec<ComputeTag<T>> rest) const {
    const ComputeTag<T> d;
    return hn::IfThenElse(hn::FirstN(d, count), v, rest);
  }
};

// Calls fn(FullLanes or LastLanes) for a row of n elements.
template <typename T, typename Fn>
HWY_INLINE void for_each_lanes(int64_t n, const Fn& fn) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) fn(FullLanes<T>{i});
  if (i < n) fn(LastLanes<T>{i, static_cast<size_t>(n - i)});
}

// The sum of term(lanes) over a row of n elements, in four vectors, so that each lane adds a
// fraction of a row and no addition waits for the one before.
template <typename T, typename Term>
HWY_INLINE Compute<T> sum_of_terms(int64_t n, const Term& term) {
  const ComputeTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, term(FullLanes<T>{i}));
    s1 = hn::Add(s1, term(FullLanes<T>{i + lanes}));
    s2 = hn::Add(s2, term(FullLanes<T>{i + 2 * lanes}));
    s3 = hn::Add(s3, term(FullLanes<T>{i + 3 * lanes}));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, term(FullLanes<T>{i}));
  if (i < n) {
    const LastLanes<T> last{i, static_cast<size_t>(n - i)};
    s1 = hn::Add(s1, last.clear_rest(term(last)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SUMS_INL_HPP
