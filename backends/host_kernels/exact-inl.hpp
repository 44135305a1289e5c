// Products whose rounding error is known, sums of two vectors, and ways to compute lanes elsewhere:
// f32 through vectors of f64, and rare lanes one by one.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_EXACT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_EXACT_INL_HPP
#undef BACKPLANE_CPU_EXACT_INL_HPP
#else
#define BACKPLANE_CPU_EXACT_INL_HPP
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A number that is the sum of both vectors. |low| is at most an ulp of |high|.
template <class V>
struct Pair {
  V high, low;
};

// Returns a + b, if |a| >= |b| or a is 0.
template <class V>
HWY_INLINE Pair<V> sum_of_ordered(V a, V b) {
  const V high = hn::Add(a, b);
  return {high, hn::Sub(b, hn::Sub(high, a))};
}

// Returns a - b.
template <class V>
HWY_INLINE Pair<V> difference(V a, V b) {
  const V high = hn::Sub(a, b), part = hn::Sub(high, a);
  return {high, hn::Sub(hn::Sub(a, hn::Sub(high, part)), hn::Add(b, part))};
}

// Returns the upper half of the digits of x. The rest of x has as many digits, or one more in f64.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V upper_digits(D d, V x) {
  using Bits = hwy::MakeUnsigned<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits_d;
  constexpr int kLowerDigits = sizeof(Bits) == 4 ? 12 : 27;
  const auto mask = hn::Set(bits_d, static_cast<Bits>(~Bits{0} << kLowerDigits));
  return hn::BitCast(d, hn::And(hn::BitCast(bits_d, x), mask));
}

// Returns a * b - product, where `product` is a * b rounded. In f64 without fused multiply-add, the
// result is off by an ulp of itself if both a and b have 53 digits.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V product_error(D d, V a, V b, V product) {
#if HWY_NATIVE_FMA
  static_cast<void>(d);
  return hn::MulSub(a, b, product);
#else
  const V a_high = upper_digits(d, a), a_low = hn::Sub(a, a_high);
  const V b_high = upper_digits(d, b), b_low = hn::Sub(b, b_high);
  const V first = hn::MulAdd(a_high, b_low, hn::MulSub(a_high, b_high, product));
  return hn::MulAdd(a_low, b_low, hn::MulAdd(a_low, b_high, first));
#endif
}

// Returns c - a * b, if that is a number of T or nearly one, and c and a * b differ by at most a
// factor of 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V residual(D d, V c, V a, V b) {
#if HWY_NATIVE_FMA
  static_cast<void>(d);
  return hn::NegMulAdd(a, b, c);
#else
  const V product = hn::Mul(a, b);
  return hn::Sub(hn::Sub(c, product), product_error(d, a, b, product));
#endif
}

// Returns function(d, x...) of f32, computed by function(wide_d, ...) of f64.
template <class D, class Function, class... V>
HWY_INLINE hn::Vec<D> in_f64(D d, Function function, V... x) {
#if HWY_TARGET == HWY_SCALAR
  // Highway would demote infinity to the largest number here.
  const hn::Rebind<double, D> wide_d;
  const double result = hn::GetLane(function(wide_d, hn::PromoteTo(wide_d, x)...));
  return hn::Set(d, static_cast<float>(result));
#else
  if constexpr (hn::MaxLanes(D()) == 1) {
    const hn::Rebind<double, D> wide_d;
    return hn::DemoteTo(d, function(wide_d, hn::PromoteTo(wide_d, x)...));
  } else {
    const hn::Half<D> half_d;
    const hn::Rebind<double, hn::Half<D>> wide_d;
    const auto lower = function(wide_d, hn::PromoteTo(wide_d, hn::LowerHalf(half_d, x))...);
    const auto upper = function(wide_d, hn::PromoteTo(wide_d, hn::UpperHalf(half_d, x))...);
    return hn::Combine(d, hn::DemoteTo(half_d, upper), hn::DemoteTo(half_d, lower));
  }
#endif
}

// Returns function(x) where `is_rare` is set, and `usual` elsewhere. Lanes are computed one by one.
template <class D, class V, class M, class Function>
HWY_NOINLINE V with_rare_lanes(D d, M is_rare, V usual, V x, Function function) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(hn::IfThenElseZero(is_rare, x), d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = function(lanes[i]);
  return hn::IfThenElse(is_rare, hn::Load(d, lanes), usual);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_EXACT_INL_HPP
