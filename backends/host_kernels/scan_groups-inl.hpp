// Scans of groups of eight elements, for scan.cpp. An Op has
//
//   kStart                  the total of no elements
//   combine(total, x)       for numbers, and combine(d, total, x) for vectors
//   kTakesIntegers          whether vectors of 64-bit integers can be combined on every target
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SCAN_GROUPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SCAN_GROUPS_INL_HPP
#undef BACKPLANE_CPU_SCAN_GROUPS_INL_HPP
#else
#define BACKPLANE_CPU_SCAN_GROUPS_INL_HPP
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The elements that are scanned side by side: each step combines an element with the one that lies
// 1, 2 or 4 places before it.
constexpr int64_t kGroup = 8;

#if HWY_TARGET <= HWY_AVX3
// Moves the elements of a group by kPlaces, and sets the first ones to `first`.
template <int kPlaces, class D, class V = hn::Vec<D>>
HWY_INLINE V move_up(D d, V v, V first) {
  const hn::RebindToUnsigned<D> bits_d;
  const auto place = hn::Iota(bits_d, 0), distance = hn::Set(bits_d, kPlaces);
  const auto from = hn::And(hn::Sub(place, distance), hn::Set(bits_d, kGroup - 1));
  const auto moved = hn::TableLookupLanes(v, hn::IndicesFromVec(d, from));
  return hn::IfThenElse(hn::RebindMask(d, hn::Lt(place, distance)), first, moved);
}
#endif

#if HWY_TARGET != HWY_SCALAR
// Scans groups as scan_groups() does, in vectors of two, which no target has to shuffle across its
// blocks.
template <class Op, typename A>
A scan_pairs(A* a, int64_t groups, A before, A total) {
  const hn::FixedTag<A, 2> d;
  const auto first = hn::Set(d, static_cast<A>(Op::kStart)), offset = hn::Set(d, before);
  auto sum = hn::Set(d, total);
  for (int64_t group = 0; group < groups; ++group, a += kGroup) {
    hn::Vec<decltype(d)> v[4];
    for (int i = 0; i < 4; ++i) v[i] = hn::LoadU(d, a + 2 * i);
    // The elements one, two and four places before: a vector stays the same or follows another one.
    for (int i = 3; i >= 0; --i) {
      const auto behind = i == 0 ? first : v[i - 1];
      v[i] = Op::combine(d, v[i], hn::CombineShiftRightLanes<1>(d, v[i], behind));
    }
    for (int i = 3; i >= 1; --i) v[i] = Op::combine(d, v[i], v[i - 1]);
    for (int i = 3; i >= 2; --i) v[i] = Op::combine(d, v[i], v[i - 2]);
    for (int i = 0; i < 4; ++i) {
      hn::StoreU(Op::combine(d, offset, Op::combine(d, sum, v[i])), d, a + 2 * i);
    }
    sum = Op::combine(d, sum, hn::InterleaveUpper(d, v[3], v[3]));
  }
  return hn::GetLane(sum);
}
#endif

// Replaces the elements of groups by combine(before, total up to each of them), where `total` is
// the total before a group. Returns the total of all.
template <class Op, typename A>
A scan_groups(A* a, int64_t groups, A before, A total) {
#if HWY_TARGET <= HWY_AVX3
  const hn::FixedTag<A, kGroup> d;
  const auto first = hn::Set(d, static_cast<A>(Op::kStart)), offset = hn::Set(d, before);
  const auto last = hn::IndicesFromVec(d, hn::Set(hn::RebindToUnsigned<decltype(d)>(), kGroup - 1));
  auto sum = hn::Set(d, total);
  for (int64_t group = 0; group < groups; ++group, a += kGroup) {
    auto v = hn::LoadU(d, a);
    v = Op::combine(d, v, move_up<1>(d, v, first));
    v = Op::combine(d, v, move_up<2>(d, v, first));
    v = Op::combine(d, v, move_up<4>(d, v, first));
    hn::StoreU(Op::combine(d, offset, Op::combine(d, sum, v)), d, a);
    sum = Op::combine(d, sum, hn::TableLookupLanes(v, last));
  }
  return hn::GetLane(sum);
#else
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_floating_point_v<A> || Op::kTakesIntegers) {
    return scan_pairs<Op>(a, groups, before, total);
  }
#endif
  for (int64_t group = 0; group < groups; ++group, a += kGroup) {
    for (int64_t places = 1; places < kGroup; places *= 2) {
      for (int64_t i = kGroup - 1; i >= places; --i) a[i] = Op::combine(a[i], a[i - places]);
    }
    const A own = total;
    total = Op::combine(total, a[kGroup - 1]);
    for (int64_t i = 0; i < kGroup; ++i) a[i] = Op::combine(before, Op::combine(own, a[i]));
  }
  return total;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SCAN_GROUPS_INL_HPP
