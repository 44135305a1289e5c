// Hyperbolic functions, their inverses, and hypot on vectors of f32 and f64.
//
//           largest error found, in ulp     how
//           f32           f64
//   sinh    1.9           2.2               sinh(r) and cosh(r) with the powers 2^n and 2^-n
//   cosh    1.8           1.6               the same
//   asinh   1.8           1.7               by log1p
//   acosh   2.4           2.2               by log1p
//   atanh   2.1           2.0               by log1p
//   hypot   1.2           1.2               the root of the sum of squares of scaled numbers
//
// These are the errors over targets with fused multiply-add and without it. NaN gives NaN, and
// infinities and zeros give what C says. Each lane is computed by itself.
//
// The polynomials interpolate their functions at the Chebyshev nodes of the named interval. Their
// coefficients were computed with 100 digits.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_HYPERBOLIC_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_HYPERBOLIC_INL_HPP
#undef BACKPLANE_CPU_HYPERBOLIC_INL_HPP
#else
#define BACKPLANE_CPU_HYPERBOLIC_INL_HPP
#endif

#include <limits>

#include "backends/host_kernels/logarithm-inl.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// kSinh is (sinh(r) / r - 1) / r^2 and kCosh is (cosh(r) - 1) / r^2 in terms of r^2, for |r| up to
// ln(2) / 2. Both functions of kMost are infinite. asinh(x) of a larger number than kLogMost, and
// acosh(x), is log(2 x).
template <typename T>
struct HyperbolicTraits;

template <>
struct HyperbolicTraits<float> {
  static constexpr float kMost = 89.5f, kLogMost = 0x1p30f;
  static constexpr float kSinh[] = {0.16666667f, 0.0083333105f, 0.0001989108f};
  static constexpr float kCosh[] = {0.5f, 0.041666463f, 0.0013933731f};
  // hypot() scales larger numbers than kLarge down, and smaller ones than kSmall up.
  static constexpr float kLarge = 0x1p60f, kSmall = 0x1p-50f, kScale = 0x1p90f;
};

template <>
struct HyperbolicTraits<double> {
  static constexpr double kMost = 710.5, kLogMost = 0x1p60;
  static constexpr double kSinh[] = {0.16666666666666669, 0.008333333333330039,
                                     0.00019841269863171557, 2.7557268276905696e-06,
                                     2.5100472505694996e-08};
  static constexpr double kCosh[] = {0.5,
                                     0.04166666666666668,
                                     0.0013888888888879004,
                                     2.480158733663095e-05,
                                     2.755726307730941e-07,
                                     2.091821231913398e-09};
  static constexpr double kLarge = 0x1p500, kSmall = 0x1p-450, kScale = 0x1p600;
};

// |x| is r + n * ln 2. `sum` and `difference` are those of 2^n and 2^-n, times 1/4. `sine` is
// sinh(r), and `cosine` is cosh(r) - 1. The quarter keeps 2^n from overflow.
template <class V>
struct HyperbolicParts {
  V sum, difference, sine, cosine;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE HyperbolicParts<V> hyperbolic_parts(D d, V x) {
  using T = hn::TFromD<D>;
  using E = ExpTraits<T>;
  using C = HyperbolicTraits<T>;
  constexpr T kQuarter = E::kBias - 2;
  const hn::RebindToUnsigned<D> bits_d;
  const V magnitude = hn::Abs(x), most = hn::Set(d, C::kMost), round = hn::Set(d, E::kRound);
  const V capped = hn::IfThenElse(hn::Gt(magnitude, most), most, magnitude);
  const V n = hn::Sub(hn::MulAdd(capped, hn::Set(d, E::kLog2E), round), round);
  const V high = hn::NegMulAdd(n, hn::Set(d, E::kLn2High), capped);
  const V r = hn::NegMulAdd(n, hn::Set(d, E::kLn2Low), high), square = hn::Mul(r, r);
  const auto power = [&](V exponent) HWY_ATTR {
    const V biased = hn::Add(exponent, hn::Set(d, E::kRound + kQuarter));
    return hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, biased)));
  };
  // If n is large, 2^-n does not count, and it could be no normal number.
  const V large = power(n);
  const V small = hn::IfThenElseZero(hn::Lt(n, hn::Set(d, T{60})), power(hn::Neg(n)));
  const V sine = hn::MulAdd(hn::Mul(r, square), polynomial(d, square, C::kSinh), r);
  const V cosine = hn::Mul(square, polynomial(d, square, C::kCosh));
  return {hn::Add(large, small), hn::Sub(large, small), sine, cosine};
}

// Returns the hyperbolic sine of x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sinh(D d, V x) {
  using T = hn::TFromD<D>;
  const auto parts = hyperbolic_parts(d, x);
  const V low = hn::MulAdd(parts.sum, parts.sine, hn::Mul(parts.difference, parts.cosine));
  const V half = hn::Add(parts.difference, low);
  const auto is_linear = hn::Lt(hn::Abs(x), hn::Set(d, LogTraits<T>::kLog1pLinear));
  return hn::IfThenElse(is_linear, x, hn::CopySignToAbs(hn::Add(half, half), x));
}

// Returns the hyperbolic cosine of x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V cosh(D d, V x) {
  const auto parts = hyperbolic_parts(d, x);
  const V low = hn::MulAdd(parts.sum, parts.cosine, hn::Mul(parts.difference, parts.sine));
  const V half = hn::Add(parts.sum, low);
  return hn::Add(half, half);
}

// Returns the inverse of sinh. It is log(x + sqrt(1 + x^2)) = log(1 + x + x^2 / (1 + sqrt(1 +
// x^2))).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V asinh(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T{1}), magnitude = hn::Abs(x);
  const auto is_large = hn::Gt(magnitude, hn::Set(d, HyperbolicTraits<T>::kLogMost));
  const V square = hn::Mul(magnitude, magnitude);
  const V root = hn::Sqrt(hn::Add(square, one));
  const V argument = hn::Add(magnitude, hn::Div(square, hn::Add(root, one)));
  const V logarithm = log1p(d, hn::IfThenElse(is_large, magnitude, argument));
  const V ln2 = hn::IfThenElseZero(is_large, hn::Set(d, static_cast<T>(0.6931471805599453)));
  return hn::CopySignToAbs(hn::Add(logarithm, ln2), x);
}

// Returns the inverse of cosh. With t = x - 1 it is log(1 + t + sqrt(t * (t + 2))).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V acosh(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T{1}), two = hn::Set(d, T{2}), t = hn::Sub(x, one);
  const auto is_large = hn::Gt(x, hn::Set(d, HyperbolicTraits<T>::kLogMost));
  const V argument = hn::Add(t, hn::Sqrt(hn::Mul(t, hn::Add(t, two))));
  const V logarithm = log1p(d, hn::IfThenElse(is_large, x, argument));
  const V ln2 = hn::IfThenElseZero(is_large, hn::Set(d, static_cast<T>(0.6931471805599453)));
  const V nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
  return hn::IfThenElse(hn::Lt(x, one), nan, hn::Add(logarithm, ln2));
}

// Returns the inverse of tanh, log((1 + x) / (1 - x)) / 2 = log(1 + 2 x / (1 - x)) / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atanh(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T{1}), magnitude = hn::Abs(x);
  const V argument = hn::Div(hn::Add(magnitude, magnitude), hn::Sub(one, magnitude));
  const V half = hn::Mul(log1p(d, argument), hn::Set(d, static_cast<T>(0.5)));
  const auto is_linear = hn::Lt(magnitude, hn::Set(d, LogTraits<T>::kLog1pLinear));
  return hn::IfThenElse(is_linear, x, hn::CopySignToAbs(half, x));
}

// Returns the root of a^2 + b^2. It is infinite if a or b is, also if the other one is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V hypot(D d, V a, V b) {
  using T = hn::TFromD<D>;
  using C = HyperbolicTraits<T>;
  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  const V one = hn::Set(d, T{1}), up = hn::Set(d, C::kScale), down = hn::Set(d, 1 / C::kScale);
  const V x = hn::Abs(a), y = hn::Abs(b), larger = hn::IfThenElse(hn::Gt(x, y), x, y);
  const auto is_large = hn::Gt(larger, hn::Set(d, C::kLarge));
  const auto is_small = hn::Lt(larger, hn::Set(d, C::kSmall));
  const V scale = hn::IfThenElse(is_large, down, hn::IfThenElse(is_small, up, one));
  const V unscale = hn::IfThenElse(is_large, up, hn::IfThenElse(is_small, down, one));
  const V p = hn::Mul(x, scale), q = hn::Mul(y, scale);
  const V result = hn::Mul(hn::Sqrt(hn::MulAdd(p, p, hn::Mul(q, q))), unscale);
  const auto is_infinite = hn::Or(hn::Eq(x, infinity), hn::Eq(y, infinity));
  return hn::IfThenElse(is_infinite, infinity, result);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_HYPERBOLIC_INL_HPP
