// Inverses of trigonometric functions on vectors of f32 and f64.
//
//           largest error found, in ulp     how
//           f32           f64
//   asin    2.0           2.0               a polynomial, beyond 0.5 of the root of (1 - x) / 2
//   acos    1.1           1.2               the same
//   atan    1.9           1.9               one division, and a polynomial up to tan(pi/8)
//   atan2   1.9           1.8               the same
//
// These are the errors over targets with fused multiply-add and without it. NaN gives NaN, and
// infinities and zeros give what C says. Each lane is computed by itself.
//
// The polynomials interpolate their functions at the Chebyshev nodes of the named interval. Their
// coefficients were computed with 100 digits.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_ARC_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ARC_INL_HPP
#undef BACKPLANE_CPU_ARC_INL_HPP
#else
#define BACKPLANE_CPU_ARC_INL_HPP
#endif

#include <limits>

#include "backends/host_kernels/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// kAsin is (asin(x) / x - 1) / x^2 for |x| <= 0.5, and kAtan is (atan(t) / t - 1) / t^2 for |t| up
// to tan(pi/8), both in terms of the square. The other numbers are pi and parts of it, and what is
// missing from them.
template <typename T>
struct ArcTraits;

template <>
struct ArcTraits<float> {
  static constexpr float kAsin[] = {0.16666666f,  0.07500094f,  0.044599403f,
                                    0.031100662f, 0.017149238f, 0.033690847f};
  static constexpr float kAtan[] = {-0.3333333f, 0.1999954f, -0.1426395f, 0.10743669f,
                                    -0.064517185f};
  static constexpr float kPi = 3.1415927f, kPiLow = -8.742278e-08f;
};

template <>
struct ArcTraits<double> {
  static constexpr double kAsin[] = {
      0.16666666666666669, 0.07499999999998433,  0.04464285714635543,  0.030381944138531247,
      0.02237217294214989, 0.017352392720869973, 0.013971212973552933, 0.011479177415184906,
      0.01032281435018578, 0.005457506718640358, 0.01740087944269402,  -0.014851887071247204,
      0.028757851367421566};
  static constexpr double kAtan[] = {
      -0.3333333333333333,   0.19999999999995516, -0.14285714284665682, 0.11111111015187018,
      -0.0909090457530649,   0.07692183125376892, -0.06664510525508936, 0.05858140904866328,
      -0.050854078345894844, 0.03923044778479309, -0.019175404711104935};
  static constexpr double kPi = 3.141592653589793, kPiLow = 1.2246467991473532e-16;
};

// Returns pi * kFactor - x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V from_pi(D d, hn::TFromD<D> factor, V x) {
  using C = ArcTraits<hn::TFromD<D>>;
  const V low = hn::Set(d, C::kPiLow * factor);
  return hn::Sub(hn::Set(d, C::kPi * factor), hn::Sub(x, low));
}

// The arc sine of `root` is root + tail, where root is |x| up to 0.5. Beyond 0.5 it is the root of
// (1 - |x|) / 2, and asin(|x|) is pi/2 less twice its arc sine.
template <class V, class M>
struct ArcParts {
  V root, tail;
  M is_small;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE auto arc_parts(D d, V x) {
  using T = hn::TFromD<D>;
  const V half = hn::Set(d, static_cast<T>(0.5)), magnitude = hn::Abs(x);
  const auto is_small = hn::Le(magnitude, half);
  const V rest = hn::NegMulAdd(magnitude, half, half);
  const V square = hn::IfThenElse(is_small, hn::Mul(x, x), rest);
  const V root = hn::IfThenElse(is_small, magnitude, hn::Sqrt(rest));
  const V tail = hn::Mul(hn::Mul(root, square), polynomial(d, square, ArcTraits<T>::kAsin));
  return ArcParts<V, decltype(hn::Le(x, x))>{root, tail, is_small};
}

// Returns the arc sine of x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V asin(D d, V x) {
  using T = hn::TFromD<D>;
  using C = ArcTraits<T>;
  const auto parts = arc_parts(d, x);
  // pi/2 - 2 * root is exact if x is near 0.5, where the rounding would count most.
  const V two = hn::Set(d, T{2}), half_pi = hn::Set(d, C::kPi / 2);
  const V high = hn::NegMulAdd(two, parts.root, half_pi);
  const V low = hn::NegMulAdd(two, parts.tail, hn::Set(d, C::kPiLow / 2));
  const V small = hn::Add(parts.root, parts.tail), large = hn::Add(high, low);
  return hn::CopySignToAbs(hn::IfThenElse(parts.is_small, small, large), x);
}

// Returns the arc cosine of x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V acos(D d, V x) {
  using T = hn::TFromD<D>;
  const auto parts = arc_parts(d, x);
  const V arc = hn::Add(parts.root, parts.tail), twice = hn::Add(arc, arc);
  const V small = from_pi(d, static_cast<T>(0.5), hn::CopySignToAbs(arc, x));
  const V large = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), from_pi(d, T{1}, twice), twice);
  return hn::IfThenElse(parts.is_small, small, large);
}

// Returns atan(smaller / larger) for 0 <= smaller <= larger. Beyond pi/8 it is pi/4 plus the arc
// tangent of (smaller - larger) / (smaller + larger). The sum must not overflow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atan_of_ratio(D d, V smaller, V larger) {
  using T = hn::TFromD<D>;
  using C = ArcTraits<T>;
  const V slope = hn::Set(d, static_cast<T>(0.41421356237309503));
  const auto is_steep = hn::Gt(smaller, hn::Mul(larger, slope));
  const V above = hn::IfThenElse(is_steep, hn::Sub(smaller, larger), smaller);
  const V below = hn::IfThenElse(is_steep, hn::Add(smaller, larger), larger);
  const V t = hn::Div(above, below), square = hn::Mul(t, t);
  const V base = hn::IfThenElseZero(is_steep, hn::Set(d, C::kPi / 4));
  const V base_low = hn::IfThenElseZero(is_steep, hn::Set(d, C::kPiLow / 4));
  const V tail = hn::MulAdd(hn::Mul(t, square), polynomial(d, square, C::kAtan), base_low);
  return hn::Add(base, hn::Add(t, tail));
}

// Returns the arc tangent of x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atan(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T{1}), magnitude = hn::Abs(x);
  const auto is_large = hn::Gt(magnitude, one);
  const V smaller = hn::IfThenElse(is_large, one, magnitude);
  const V arc = atan_of_ratio(d, smaller, hn::IfThenElse(is_large, magnitude, one));
  const V beyond = from_pi(d, static_cast<T>(0.5), arc);
  return hn::CopySignToAbs(hn::IfThenElse(is_large, beyond, arc), x);
}

// Returns the angle of the point (x, y), which is within [-pi, pi].
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atan2(D d, V y, V x) {
  using T = hn::TFromD<D>;
  using Limits = std::numeric_limits<T>;
  const V one = hn::Set(d, T{1}), zero = hn::Zero(d);
  const V across = hn::Abs(x), up = hn::Abs(y);
  const auto is_upper = hn::Gt(up, across);
  V smaller = hn::IfThenElse(is_upper, across, up), larger = hn::IfThenElse(is_upper, up, across);
  // Large numbers are made smaller, so that their sum does not overflow.
  const auto is_huge = hn::Gt(larger, hn::Set(d, Limits::max() / 4));
  const V scale = hn::IfThenElse(is_huge, hn::Set(d, static_cast<T>(0.25)), one);
  const auto are_infinite = hn::Eq(smaller, hn::Set(d, Limits::infinity()));
  smaller =
      hn::IfThenElse(hn::And(are_infinite, hn::Eq(smaller, larger)), one, hn::Mul(smaller, scale));
  larger = hn::IfThenElse(hn::And(are_infinite, hn::Eq(up, across)), one, hn::Mul(larger, scale));
  larger = hn::IfThenElse(hn::Eq(larger, zero), one, larger);
  V arc = atan_of_ratio(d, smaller, larger);
  arc = hn::IfThenElse(is_upper, from_pi(d, static_cast<T>(0.5), arc), arc);
  const auto is_left = hn::Lt(hn::CopySign(one, x), zero);  // Also -0 is left.
  return hn::CopySignToAbs(hn::IfThenElse(is_left, from_pi(d, T{1}, arc), arc), y);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ARC_INL_HPP
