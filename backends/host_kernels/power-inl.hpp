// Powers on vectors of f32 and f64.
//
//         largest error found, in ulp     how
//         f32           f64
//   pow   0.6           1.5               exp(b * log(a)); the logarithm has more digits than T
//
// These are the errors over targets with fused multiply-add and without it. NaN gives NaN, and
// infinities and zeros give what C says. Each lane is computed by itself.
//
// The polynomials interpolate their functions at the Chebyshev nodes, where the argument of the
// logarithm is between the roots of 1/2 and 2, or the argument of the power of 2 within 1/2. Their
// coefficients were computed with 100 digits.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_POWER_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_POWER_INL_HPP
#undef BACKPLANE_CPU_POWER_INL_HPP
#else
#define BACKPLANE_CPU_POWER_INL_HPP
#endif

#include <limits>

#include "backends/host_kernels/exact-inl.hpp"
#include "backends/host_kernels/exponential-inl.hpp"
#include "backends/host_kernels/logarithm-inl.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Polynomials of f64 that are exact enough for a result of f32. They are those of LogTraits and
// Exp2Traits otherwise.
struct PowerToF32 {
  static constexpr double kLog[] = {0.6666666666737868, 0.3999999879244169, 0.28571755535032944,
                                    0.22191337428065783, 0.19363884986633198};
  static constexpr double kExp2[] = {
      0.6931471805599453,   0.24022650923651495,    0.05550410884014512,  0.009618056388057775,
      0.001333350216258813, 0.00015461560778872135, 1.529741310727295e-05};
};

// Returns a^b for a result of f32, if a is positive and finite. Beyond 2^kMost the result is
// infinite in f32, and below 2^-kMost it is 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_to_f32(D d, V a, V b) {
  using E = ExpTraits<double>;
  constexpr double kMost = 200.0;
  const hn::RebindToUnsigned<D> bits_d;
  const LogParts<V> parts = split_log(d, a);
  const V f = parts.fraction, ln = hn::Add(f, log_minus_fraction(d, f, PowerToF32::kLog));
  const V log2 = hn::MulAdd(ln, hn::Set(d, E::kLog2E), parts.exponent);
  const V most = hn::Set(d, kMost), product = hn::Mul(b, log2);
  const auto is_beyond = hn::Gt(hn::Abs(product), most);
  const V exponent = hn::IfThenElse(is_beyond, hn::CopySign(most, product), product);
  const V round = hn::Set(d, E::kRound + E::kBias), shifted = hn::Add(exponent, round);
  const V r = hn::Sub(exponent, hn::Sub(shifted, round));
  const V significand = hn::MulAdd(polynomial(d, r, PowerToF32::kExp2), r, hn::Set(d, 1.0));
  const auto power = hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, shifted));
  return hn::Mul(significand, hn::BitCast(d, power));
}

// log(1 + f) is 2 s + s^3 (kFirst + s^2 P(s^2)), where s = f / (2 + f). kFirst is 2/3 and has two
// parts. kLn2High has 42 digits, so that its product with an exponent is exact.
struct LongLogTraits {
  static constexpr double kFirst = 0.6666666666666666, kFirstLow = 3.700743415417188e-17;
  static constexpr double kTail[] = {0.4,
                                     0.2857142857142937,
                                     0.22222222221652765,
                                     0.18181818336099848,
                                     0.1538459488700718,
                                     0.1333480879881234,
                                     0.11706126464563398,
                                     0.11724327060846747};
  static constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
};

// Returns log(1 + f), with an error of at most 2^-63 of it. The terms in s are computed with their
// rounding errors up to s^3.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Pair<V> long_log_of_fraction(D d, V f) {
  using C = LongLogTraits;
  const V two = hn::Set(d, 2.0), below = hn::Add(f, two);
  const V below_low = hn::Sub(f, hn::Sub(below, two));
  const V reciprocal = hn::Div(hn::Set(d, 1.0), below), s = hn::Mul(f, reciprocal);
  const V rest = hn::NegMulAdd(s, below_low, residual(d, f, s, below));
  const V s_low = hn::Mul(rest, reciprocal);
  const V square = hn::Mul(s, s);
  const V square_low = hn::MulAdd(hn::Add(s, s), s_low, product_error(d, s, s, square));
  const V tail = hn::MulAdd(square, polynomial(d, square, C::kTail), hn::Set(d, C::kFirstLow));
  const Pair<V> factor = sum_of_ordered(hn::Set(d, C::kFirst), tail);
  const V w = hn::Mul(square, factor.high);
  V w_low = hn::MulAdd(square, factor.low, product_error(d, square, factor.high, w));
  w_low = hn::MulAdd(square_low, factor.high, w_low);
  const V cubic = hn::Mul(s, w);
  V cubic_low = hn::MulAdd(s, w_low, product_error(d, s, w, cubic));
  cubic_low = hn::MulAdd(s_low, w, cubic_low);
  const Pair<V> sum = sum_of_ordered(hn::Add(s, s), cubic);
  return {sum.high, hn::Add(sum.low, hn::MulAdd(two, s_low, cubic_low))};
}

// Returns log(x) of a positive finite x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Pair<V> long_log(D d, V x) {
  const LogParts<V> parts = split_log(d, x);
  const Pair<V> fraction = long_log_of_fraction(d, parts.fraction);
  const V whole = hn::Mul(parts.exponent, hn::Set(d, LongLogTraits::kLn2High));
  const Pair<V> sum = sum_of_ordered(whole, fraction.high);
  const V ln2_low = hn::Set(d, LongLogTraits::kLn2Low);
  const V low = hn::MulAdd(parts.exponent, ln2_low, hn::Add(sum.low, fraction.low));
  return sum_of_ordered(sum.high, low);
}

// Returns a^b for a result of f64, if a is positive and finite.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_to_f64(D d, V a, V b) {
  using E = ExpTraits<double>;
  const Pair<V> log = long_log(d, a);
  const V product = hn::Mul(b, log.high);
  const V low = hn::MulAdd(b, log.low, product_error(d, b, log.high, product));
  const V least = hn::Set(d, E::kLeast), most = hn::Set(d, E::kMost);
  const auto is_below = hn::Lt(product, least), is_above = hn::Gt(product, most);
  const V above = hn::IfThenElse(is_below, least, product);
  const V exponent = hn::IfThenElse(is_above, most, above);
  const V rest = hn::IfThenZeroElse(hn::Or(is_below, is_above), low);
  const ExpParts<V> parts = split_exp(d, exponent, E::kRound + 2 * E::kBias);
  const V significand = hn::MulAdd(parts.significand, rest, parts.significand);
  return times_power_of_two(d, significand, parts.shifted);
}

// Returns a^b, where `value` is |a|^b if both are finite and a is not 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V with_special_powers(D d, V a, V b, V value) {
  using T = hn::TFromD<D>;
  using Limits = std::numeric_limits<T>;
  const V zero = hn::Zero(d), one = hn::Set(d, T{1}), infinity = hn::Set(d, Limits::infinity());
  const V half = hn::Mul(b, hn::Set(d, static_cast<T>(0.5)));
  const auto is_whole = hn::Eq(hn::Round(b), b);
  const auto is_odd = hn::AndNot(hn::Eq(hn::Round(half), half), is_whole);
  const auto is_zero = hn::Eq(a, zero), is_infinite = hn::Eq(hn::Abs(a), infinity);
  const V growth = hn::IfThenElse(is_zero, hn::Neg(b), b);
  const V limit = hn::IfThenElseZero(hn::Gt(growth, zero), infinity);
  V result = hn::IfThenElse(hn::Or(is_zero, is_infinite), limit, value);
  result = hn::IfThenElse(is_odd, hn::CopySign(result, a), result);
  // The root of a negative number is NaN, but infinity counts as a limit.
  const auto has_root = hn::AndNot(is_infinite, hn::Lt(a, zero));
  const V nan = hn::Set(d, Limits::quiet_NaN());
  result = hn::IfThenElse(hn::AndNot(is_whole, has_root), nan, result);
  result = hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), nan, result);
  return hn::IfThenElse(hn::Or(hn::Eq(a, one), hn::Eq(b, zero)), one, result);
}

// Returns a^b.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V pow(D d, V a, V b) {
  using T = hn::TFromD<D>;
  // With an exponent of 2^80 each result is 0, 1 or infinity. No product overflows with it.
  const V most = hn::Set(d, static_cast<T>(0x1p80));
  const V exponent = hn::IfThenElse(hn::Gt(hn::Abs(b), most), hn::CopySign(most, b), b);
  V value;
  if constexpr (sizeof(T) == 4) {
    const auto function = [](auto wide_d, auto x, auto y)
                              HWY_ATTR { return power_to_f32(wide_d, x, y); };
    value = in_f64(d, function, hn::Abs(a), exponent);
  } else {
    value = power_to_f64(d, hn::Abs(a), exponent);
  }
  return with_special_powers(d, a, b, value);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_POWER_INL_HPP
