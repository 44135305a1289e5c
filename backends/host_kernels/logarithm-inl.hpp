// Logarithms on vectors of f32 and f64.
//
//           largest error found, in ulp
//           f32           f64
//   log1p   1.5           1.5
//   log2    1.4           1.3
//   log10   1.1           1.1
//
// These are the errors over targets with fused multiply-add and without it. NaN gives NaN, and
// infinities and zeros give what C says. Each lane is computed by itself.
//
// The argument is 2^e * (1 + f) with 1 + f between the roots of 1/2 and 2. With s = f / (2 + f),
// log(1 + f) is log((1 + s) / (1 - s)), which is 2s plus an odd function of s. That is written as
// f + (s * (f^2 / 2 + s^2 * P(s^2)) - f^2 / 2), because f is exact. The polynomial P interpolates
// its function at the Chebyshev nodes. Its coefficients were computed with 100 digits.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_LOGARITHM_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_LOGARITHM_INL_HPP
#undef BACKPLANE_CPU_LOGARITHM_INL_HPP
#else
#define BACKPLANE_CPU_LOGARITHM_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "backends/host_kernels/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// kTail is P for 1 + f between the roots of 1/2 and 2. kLog10Of2 is split so that its product with
// an exponent is exact. Below kLog1pLinear in magnitude, log1p(x) is x.
template <typename T>
struct LogTraits;

template <>
struct LogTraits<float> {
  static constexpr uint32_t kRootOfHalf = 0x3f3504f3, kOne = 0x3f800000;
  static constexpr float kSubnormalScale = 0x1p25f, kSubnormalExponent = 25.0f;
  static constexpr float kLog10Of2High = 0x1.344p-2f, kLog10Of2Low = 4.605039e-06f;
  static constexpr float kLog1pLinear = 0x1p-26f;
  static constexpr float kTail[] = {0.66666687f, 0.3998876f, 0.29580986f};
};

template <>
struct LogTraits<double> {
  static constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  static constexpr double kSubnormalScale = 0x1p54, kSubnormalExponent = 54.0;
  static constexpr double kLog10Of2High = 0x1.34413509f6p-2, kLog10Of2Low = 0x1.9fef311f12b36p-42;
  static constexpr double kLog1pLinear = 0x1p-55;
  static constexpr double kTail[] = {0.666666666666667,   0.3999999999989889, 0.28571428626253836,
                                     0.22222211089379496, 0.1818289243253687, 0.15331611722055008,
                                     0.14617807153417325};
};

// A positive number is 2^exponent * (1 + fraction).
template <class V>
struct LogParts {
  V exponent, fraction;
};

// Splits x. If x is not positive and finite, the result is any pair of numbers.
template <class D, class V = hn::Vec<D>>
HWY_INLINE LogParts<V> split_log(D d, V x) {
  using T = hn::TFromD<D>;
  using C = LogTraits<T>;
  using Bits = hwy::MakeUnsigned<T>;
  constexpr int kFractionBits = ExpTraits<T>::kFractionBits;
  constexpr T kTwoToFraction = T{Bits{1} << kFractionBits};
  const hn::RebindToUnsigned<D> bits_d;
  const auto is_small = hn::Lt(x, hn::Set(d, std::numeric_limits<T>::min()));
  const V scaled = hn::IfThenElse(is_small, hn::Mul(x, hn::Set(d, C::kSubnormalScale)), x);
  const auto root = hn::Set(bits_d, C::kRootOfHalf);
  const auto above_root = hn::Sub(hn::BitCast(bits_d, scaled), root);
  const auto bits = hn::Add(above_root, hn::Set(bits_d, C::kOne));
  // The biased exponent is put into the fraction of 2^kFractionBits, so that it becomes a number.
  const auto two_to_fraction = hn::BitCast(bits_d, hn::Set(d, kTwoToFraction));
  const auto number = hn::Or(hn::ShiftRight<kFractionBits>(bits), two_to_fraction);
  const V biased = hn::BitCast(d, number);
  const V bias = hn::Set(d, kTwoToFraction + ExpTraits<T>::kBias);
  const V shift = hn::IfThenElseZero(is_small, hn::Set(d, C::kSubnormalExponent));
  const auto fraction_bits = hn::Set(bits_d, (Bits{1} << kFractionBits) - 1);
  const V significand = hn::BitCast(d, hn::Add(hn::And(bits, fraction_bits), root));
  return {hn::Sub(hn::Sub(biased, bias), shift), hn::Sub(significand, hn::Set(d, T{1}))};
}

// Returns log(1 + f) - f for 1 + f between the roots of 1/2 and 2.
template <class D, class V, typename T, size_t kCount>
HWY_INLINE V log_minus_fraction(D d, V f, const T (&tail)[kCount]) {
  const V s = hn::Div(f, hn::Add(f, hn::Set(d, T{2}))), square = hn::Mul(s, s);
  const V half = hn::Mul(hn::Mul(f, f), hn::Set(d, static_cast<T>(0.5)));
  return hn::MulSub(s, hn::MulAdd(square, polynomial(d, square, tail), half), half);
}

// The logarithm of 2 and log(e) of a base. log(e) is simple + rest, where products with `simple`
// are exact. So the rounding of log(e) * f hardly counts.
template <typename T>
struct LogBase {
  T two_high, two_low, simple, rest;
};

// Returns exponent * log(2) + log(1 + f).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_of_parts(D d, V exponent, V f, LogBase<hn::TFromD<D>> base) {
  const V low = log_minus_fraction(d, f, LogTraits<hn::TFromD<D>>::kTail);
  const V scale = hn::Set(d, base.simple + base.rest);
  V rest = hn::MulAdd(low, scale, hn::Mul(f, hn::Set(d, base.rest)));
  rest = hn::MulAdd(exponent, hn::Set(d, base.two_low), rest);
  const V fraction = hn::MulAdd(f, hn::Set(d, base.simple), rest);
  return hn::MulAdd(exponent, hn::Set(d, base.two_high), fraction);
}

// Returns `result` except where x has no logarithm, or an infinite one.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V with_special_logs(D d, V x, V result) {
  using Limits = std::numeric_limits<hn::TFromD<D>>;
  const V zero = hn::Zero(d), infinity = hn::Set(d, Limits::infinity());
  result = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), result);
  result = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, Limits::quiet_NaN()), result);
  // Infinity and NaN are their own logarithms.
  return hn::IfThenElse(hn::Lt(x, infinity), result, hn::Add(x, x));
}

// Returns the logarithm of x to the base 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log2(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr LogBase<T> kBase = {1, 0, 1, static_cast<T>(0.4426950408889634)};
  const LogParts<V> parts = split_log(d, x);
  return with_special_logs(d, x, log_of_parts(d, parts.exponent, parts.fraction, kBase));
}

// Returns the logarithm of x to the base 10.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log10(D d, V x) {
  using T = hn::TFromD<D>;
  using C = LogTraits<T>;
  constexpr LogBase<T> kBase = {C::kLog10Of2High, C::kLog10Of2Low, static_cast<T>(0.5),
                                static_cast<T>(-0.06570551809674817)};
  const LogParts<V> parts = split_log(d, x);
  return with_special_logs(d, x, log_of_parts(d, parts.exponent, parts.fraction, kBase));
}

// Returns log(1 + x). The exponent is that of the rounded sum 1 + x. If it is small, the fraction
// is computed from x, as x * 2^-exponent + (2^-exponent - 1), which rounds once.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log1p(D d, V x) {
  using T = hn::TFromD<D>;
  using E = ExpTraits<T>;
  constexpr LogBase<T> kBase = {E::kLn2High, E::kLn2Low, 1, 0};
  const hn::RebindToUnsigned<D> bits_d;
  const V one = hn::Set(d, T{1}), sum = hn::Add(x, one);
  const LogParts<V> parts = split_log(d, sum);
  const V biased = hn::Sub(hn::Set(d, E::kRound + E::kBias), parts.exponent);
  const V scale = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, biased)));
  const V precise = hn::MulAdd(x, scale, hn::Sub(scale, one));
  const auto is_small = hn::Lt(parts.exponent, hn::Set(d, T{5}));
  const V f = hn::IfThenElse(is_small, precise, parts.fraction);
  const V result = with_special_logs(d, sum, log_of_parts(d, parts.exponent, f, kBase));
  const auto is_linear = hn::Lt(hn::Abs(x), hn::Set(d, LogTraits<T>::kLog1pLinear));
  return hn::IfThenElse(is_linear, x, result);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_LOGARITHM_INL_HPP
