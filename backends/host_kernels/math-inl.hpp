// Functions on vectors of f32 and f64, which activations, norms and losses use.
//
//                    largest error found, in ulp     how
//                    f32           f64
//   exp              1.0           1.0               2^n times a polynomial
//   log              0.9           0.9               Highway's, with the special values put right
//   tanh             2.4           2.4               by exp(2 |x|) - 1
//   times_sigmoid    2.4           2.3               by exp of -|x|
//   gelu             4.0           4.0               exp(-x^2 / 2) times a rational function
//
// NaN gives NaN, and infinities give the limits. Each lane is computed by itself.
//
// Polynomials and rational functions interpolate their function at the Chebyshev nodes of the named
// interval. Their coefficients were computed with 60 digits. The rational functions of gelu use the
// nodes of (x - a) / (x + a), with a = 3 in f32 and 4 in f64.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_MATH_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_MATH_INL_HPP
#undef BACKPLANE_CPU_MATH_INL_HPP
#else
#define BACKPLANE_CPU_MATH_INL_HPP
#endif

#include <cstddef>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns c[0] + c[1] x + c[2] x^2 + ...
template <class D, class V, typename T, size_t kCount>
HWY_INLINE V polynomial(D d, V x, const T (&c)[kCount]) {
  V y = hn::Set(d, c[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) y = hn::MulAdd(y, x, hn::Set(d, c[i]));
  return y;
}

// Returns n / q except for its last bit, if q and 1 / q are normal numbers. In f32 of AVX-512, an
// approximate reciprocal and one step of Newton's method take less time than the division: gelu of
// 4M f16 takes 710 us on two threads instead of 765.
template <class D, class V>
HWY_INLINE V quotient(D d, V n, V q) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const V reciprocal = hn::ApproximateReciprocal(q);  // The error is at most 2^-14.
    const V first = hn::Mul(n, reciprocal);
    return hn::MulAdd(hn::NegMulAdd(q, first, n), reciprocal, first);
  }
#endif
  static_cast<void>(d);
  return hn::Div(n, q);
}

// The constants of exp(). kRound is 1.5 * 2^(fraction bits): when it is added to x / ln 2, the sum
// is rounded to an integer n, which then lies in the low bits. ln 2 is split so that n * kLn2High
// is exact.
template <typename T>
struct ExpTraits;

template <>
struct ExpTraits<float> {
  static constexpr int kFractionBits = 23, kBias = 127;
  static constexpr float kRound = 0x1.8p23f, kLog2E = 0x1.715476p0f;
  static constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 3.1946184945309415e-05f;
  static constexpr float kLeast = -105.0f, kMost = 89.0f;  // exp() is 0 and infinity there.
  static constexpr float kNormal = 87.0f;                  // Below, exp(x) and exp(-x) are normal.
  // (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2.
  static constexpr float kTail[] = {0.5f, 0.16666576266288757f, 0.041666556149721146f,
                                    0.008363203145563602f, 0.0013926213141530752f};
};

template <>
struct ExpTraits<double> {
  static constexpr int kFractionBits = 52, kBias = 1023;
  static constexpr double kRound = 0x1.8p52, kLog2E = 0x1.71547652b82fep0;
  static constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kLeast = -746.0, kMost = 710.0, kNormal = 708.0;
  static constexpr double kTail[] = {0.5,
                                     0.1666666666666667,
                                     0.04166666666666667,
                                     0.008333333333326112,
                                     0.001388888888888373,
                                     0.0001984126987490126,
                                     2.4801587325605324e-05,
                                     2.7557255297969643e-06,
                                     2.755727357010214e-07,
                                     2.5105259538448494e-08,
                                     2.0914717341716378e-09};
};

// Computes exp(r), where x is r plus a multiple of ln 2, and a number whose low bits contain that
// multiple. `round` is kRound plus a number that is added to the multiple.
template <class V>
struct ExpParts {
  V significand, shifted;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE ExpParts<V> split_exp(D d, V x, hn::TFromD<D> round) {
  using T = hn::TFromD<D>;
  using E = ExpTraits<T>;
  const V one = hn::Set(d, T{1});
  const V shifted = hn::MulAdd(x, hn::Set(d, E::kLog2E), hn::Set(d, round));
  const V n = hn::Sub(shifted, hn::Set(d, round));
  const V high = hn::NegMulAdd(n, hn::Set(d, E::kLn2High), x);
  const V r = hn::NegMulAdd(n, hn::Set(d, E::kLn2Low), high);
  return {hn::MulAdd(hn::MulAdd(polynomial(d, r, E::kTail), r, one), r, one), shifted};
}

// Returns exp(x) for x in [kLeast, kMost]. A NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_in_range(D d, V x) {
  using E = ExpTraits<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits_d;
  const ExpParts<V> parts = split_exp(d, x, E::kRound + 2 * E::kBias);
  // 2^n is two factors, because 2^n itself may be no number of T: the result can be subnormal, or
  // beyond 2^bias.
  const auto sum = hn::BitCast(bits_d, parts.shifted);
  const auto half = hn::ShiftRight<1>(sum), rest = hn::Sub(sum, half);
  const V scale = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(half));
  const V scale_rest = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(rest));
  return hn::Mul(hn::Mul(parts.significand, scale), scale_rest);
}

// Returns exp(x) times 2^kBits, which must not be subnormal. For a NaN the result is any value.
template <int kBits, class D, class V = hn::Vec<D>>
HWY_INLINE V exp_by_exponent(D d, V x) {
  using E = ExpTraits<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits_d;
  const ExpParts<V> parts = split_exp(d, x, E::kRound + kBits);
  const auto exponent = hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, parts.shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(bits_d, parts.significand), exponent));
}

// Times 2 to this power, exponentials of negative numbers are normal numbers or 0.
constexpr int kExpScaleBits = 64;
template <typename T>
constexpr T kExpScale = static_cast<T>(0x1p64);

// Returns exp(x) for x in [kLeast, 0], with the same bits as exp(). A NaN stays. The power of 2 is
// a normal number until the last product. This takes one product more than
// scaled_exp_of_negative(), and no branch as exp() does.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_small(D d, V x) {
  using T = hn::TFromD<D>;
  using E = ExpTraits<T>;
  const hn::RebindToUnsigned<D> bits_d;
  const ExpParts<V> parts = split_exp(d, x, E::kRound + E::kBias + kExpScaleBits);
  const auto power = hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, parts.shifted));
  const V scaled = hn::Mul(parts.significand, hn::BitCast(d, power));
  return hn::Mul(scaled, hn::Set(d, 1 / kExpScale<T>));
}

// Returns exp(x) for x <= 0. A NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_negative(D d, V x) {
  const V least = hn::Set(d, ExpTraits<hn::TFromD<D>>::kLeast);
  return exp_of_small(d, hn::IfThenElse(hn::Lt(x, least), least, x));
}

// Returns exp(x) for x <= 0. For a NaN the result is any value.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_negative_number(D d, V x) {
  return exp_of_small(d, hn::Max(x, hn::Set(d, ExpTraits<hn::TFromD<D>>::kLeast)));
}

// Returns exp(x) times 2^kExpScaleBits, for x <= 0. The result is never subnormal, so it is rounded
// only once when it is divided by a sum of such results. For a NaN the result is any value.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scaled_exp_of_negative(D d, V x) {
  const V least = hn::Set(d, ExpTraits<hn::TFromD<D>>::kLeast);
  return exp_by_exponent<kExpScaleBits>(d, hn::Max(x, least));
}

// Returns exp(x). Both branches give the same bits.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  using E = ExpTraits<hn::TFromD<D>>;
  const auto is_normal = hn::Lt(hn::Abs(x), hn::Set(d, E::kNormal));
  if (HWY_LIKELY(hn::AllTrue(d, is_normal))) return exp_by_exponent<0>(d, x);
  const V least = hn::Set(d, E::kLeast), most = hn::Set(d, E::kMost);
  const V above = hn::IfThenElse(hn::Lt(x, least), least, x);
  return exp_in_range(d, hn::IfThenElse(hn::Gt(above, most), most, above));
}

// Returns log(x). Highway's polynomial is made for positive finite numbers.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log(D d, V x) {
  using Limits = std::numeric_limits<hn::TFromD<D>>;
  const V zero = hn::Zero(d), infinity = hn::Set(d, Limits::infinity());
  V result = hn::Log(d, x);
  result = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), result);
  result = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, Limits::quiet_NaN()), result);
  // Infinity and NaN are their own logarithms.
  return hn::IfThenElse(hn::Lt(x, infinity), result, hn::Add(x, x));
}

// tanh(|x|) is p / (p + 2) with p = exp(2 |x|) - 1. p is computed from exp(r) - 1 and 2^n - 1, so
// that it is exact to the last places for every x. Beyond kTanhMost the result is 1.
template <typename T>
constexpr T kTanhMost = sizeof(T) == 4 ? T{9.5} : T{20};

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  using T = hn::TFromD<D>;
  using E = ExpTraits<T>;
  const hn::RebindToUnsigned<D> bits_d;
  const V magnitude = hn::Abs(x), most = hn::Set(d, kTanhMost<T>);
  const V capped = hn::IfThenElse(hn::Gt(magnitude, most), most, magnitude);
  const V twice = hn::Add(capped, capped), round = hn::Set(d, E::kRound + E::kBias);
  const V shifted = hn::MulAdd(twice, hn::Set(d, E::kLog2E), round);
  const V n = hn::Sub(shifted, round);
  // ln 2 is one number here, because an error of n * 2^-28 in p hardly changes tanh(x).
  const V r = hn::NegMulAdd(n, hn::Set(d, E::kLn2High + E::kLn2Low), twice);
  const V part = hn::MulAdd(hn::Mul(r, r), polynomial(d, r, E::kTail), r);
  const V scale = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, shifted)));
  const V power = hn::MulAdd(scale, part, hn::Sub(scale, hn::Set(d, T{1})));
  return hn::CopySignToAbs(quotient(d, power, hn::Add(power, hn::Set(d, T{2}))), x);
}

// sigmoid(x) and sigmoid(-x), both without cancellation. For a NaN they are any value.
template <class V>
struct SigmoidPair {
  V of_x, of_minus_x;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE SigmoidPair<V> sigmoid_pair(D d, V x) {
  const V one = hn::Set(d, kExpScale<hn::TFromD<D>>);
  const V power = scaled_exp_of_negative(d, hn::Or(hn::SignBit(d), x));
  const V sum = hn::Add(one, power);
  const V larger = quotient(d, one, sum), smaller = quotient(d, power, sum);
  const auto is_negative = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(is_negative, smaller, larger),
          hn::IfThenElse(is_negative, larger, smaller)};
}

// Returns x * sigmoid(x), or y * sigmoid(x) in general. If x is NaN, the result is NaN if y is NaN
// too.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V times_sigmoid(D d, V y, V x) {
  const V one = hn::Set(d, kExpScale<hn::TFromD<D>>);
  const V power = scaled_exp_of_negative(d, hn::Or(hn::SignBit(d), x));
  const V part = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), power, one);
  return hn::Mul(y, quotient(d, part, hn::Add(one, power)));
}

// Returns x * sigmoid(x) for a result that is rounded to 16 bits. The error before that is at most
// 2^-20.5 of the result, or half the smallest normal bfloat16. A NaN stays. With AVX-512, silu of
// 16 bf16 takes 3.4 ns, and 4.9 ns by the formula for f32.
//
// It is x * u / (u + u exp(-x)) with u = 2^-64, so that u exp(-x) and its sum with u are normal
// numbers wherever x lies between the limits. Below the lower one the quotient is 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V narrow_times_sigmoid(D d, V x) {
  static_assert(sizeof(hn::TFromD<D>) == 4, "results of 16 bits are computed in f32");
  using E = ExpTraits<float>;
  // (exp(-r) - 1 + r) / r^2 for |r| <= ln(2) / 2.
  constexpr float kTail[] = {0.49999749660491943f, -0.16666631400585175f, 0.04183380305767059f,
                             -0.008357199840247631f};
  const hn::RebindToUnsigned<D> bits_d;
  const V one = hn::Set(d, 1.0f), unit = hn::Set(d, 1 / kExpScale<float>);
  const V limited = hn::Max(hn::Min(x, hn::Set(d, 42.0f)), hn::Set(d, E::kLeast));
  const V round = hn::Set(d, E::kRound - kExpScaleBits);
  const V shifted = hn::NegMulAdd(limited, hn::Set(d, E::kLog2E), round);
  const V n = hn::Sub(shifted, round);
  const V r = hn::MulAdd(n, hn::Set(d, E::kLn2High + E::kLn2Low), limited);
  const V significand = hn::MulAdd(hn::MulSub(polynomial(d, r, kTail), r, one), r, one);
  const auto exponent = hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, shifted));
  const V power = hn::BitCast(d, hn::Add(hn::BitCast(bits_d, significand), exponent));
  return hn::Mul(x, quotient(d, unit, hn::Add(unit, power)));
}

// Coefficients for exp(x^2 / 2) * P(-x) in terms of x, where P is the distribution function of the
// standard normal distribution. The error is at most 8e-9 for 0 <= x <= 15 in f32, and 2e-18 for 0
// <= x <= 40 in f64. All coefficients are positive, so that nothing cancels.
template <typename T>
struct TailTraits {
  static constexpr double kMost = 38.75;  // Below -kMost gelu and its slope are 0.
  static constexpr double kNumerator[] = {0.5,
                                          0.827182602669902622,
                                          0.678391801917662591,
                                          0.356363606802397788,
                                          0.13154403773894914,
                                          0.0354894004298459874,
                                          0.00707735058047188198,
                                          0.00103135909664638263,
                                          0.000105503083583983938,
                                          6.88840447104680482e-06,
                                          2.20614160882023299e-07};
  static constexpr double kDenominator[] = {1.0,
                                            2.45224976614267069,
                                            2.81339583147299564,
                                            1.99732894816058385,
                                            0.977232166202090666,
                                            0.346948900253323756,
                                            0.0915094353867671026,
                                            0.0180036380827591062,
                                            0.00260250054256011307,
                                            0.000265010010062864813,
                                            1.72666694142478771e-05,
                                            5.52997693450756821e-07};
};

template <>
struct TailTraits<float> {
  static constexpr float kMost = 15.0f;
  static constexpr float kNumerator[] = {0.5f, 0.438674257382062067f, 0.183471861430168631f,
                                         0.04070006147737858f, 0.00412252820306921497f};
  static constexpr float kDenominator[] = {1.0f,
                                           1.67523341683843651f,
                                           1.20358243374087966f,
                                           0.470084305233697846f,
                                           0.102026065080089993f,
                                           0.0103335341330186088f};
};

// P(-|x|) is power * factor. `power` is exp(-x^2 / 2) * 2^64 and never subnormal. `factor` has the
// rest, so that the product of both rounds once.
template <class V>
struct NormalTail {
  V power, factor;
};

// Computes the tail for 0 <= x <= kMost. The rounding of x^2 would cause an error of the power that
// grows with x^2. If the target has fused multiply-add, the rounding error of the square is added
// to the power.
template <class D, class V = hn::Vec<D>>
HWY_INLINE NormalTail<V> normal_tail(D d, V x) {
  using T = hn::TFromD<D>;
  using C = TailTraits<T>;
  const V half = hn::Set(d, static_cast<T>(-0.5)), unscale = hn::Set(d, 1 / kExpScale<T>);
  const V square = hn::Mul(x, x), lost = hn::MulSub(x, x, square);
  const V power = exp_by_exponent<kExpScaleBits>(d, hn::Mul(square, half));
  const V factor = quotient(d, polynomial(d, x, C::kNumerator), polynomial(d, x, C::kDenominator));
  return {hn::MulAdd(hn::Mul(power, half), lost, power), hn::Mul(factor, unscale)};
}

// Returns x * P(x), with an error that is relative to the result.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V times_normal_cdf(D d, V x) {
  const V magnitude = hn::Min(hn::Abs(x), hn::Set(d, TailTraits<hn::TFromD<D>>::kMost));
  const auto tail = normal_tail(d, magnitude);
  // The order matters, because the product of a small x and the factor would be subnormal.
  const V lacking = hn::Mul(hn::Mul(magnitude, tail.power), tail.factor);
  return hn::Sub(hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x), lacking);  // A NaN stays.
}

// Returns the derivative of gelu, P(x) + x * exp(-x^2 / 2) / sqrt(2 pi). The derivatives at x and
// at -x add to 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_cdf_slope(D d, V x) {
  using T = hn::TFromD<D>;
  const V magnitude = hn::Min(hn::Abs(x), hn::Set(d, TailTraits<T>::kMost));
  const auto tail = normal_tail(d, magnitude);
  const V density = hn::Set(d, static_cast<T>(0.3989422804014327) / kExpScale<T>);
  const V below = hn::Mul(tail.power, hn::NegMulAdd(magnitude, density, tail.factor));
  const V above = hn::Sub(hn::Set(d, T{1}), below);
  const V slope = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, above);
  return hn::IfThenElse(hn::Eq(x, x), slope, x);
}

// Returns the argument of sigmoid() in gelu(tanh), sqrt(8 / pi) * (x + 0.044715 x^3). If the
// sigmoid is 0 or 1, x is limited to 40, so that the cube does not overflow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V cap_for_gelu(D d, V x) {
  const V most = hn::Set(d, hn::TFromD<D>{40});
  return hn::IfThenElse(hn::Gt(hn::Abs(x), most), hn::CopySign(most, x), x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_argument(D d, V x) {
  using T = hn::TFromD<D>;
  const V cubic = hn::Set(d, static_cast<T>(0.044715 * 1.5957691216057308));
  const V linear = hn::Set(d, static_cast<T>(1.5957691216057308));
  return hn::Mul(x, hn::MulAdd(hn::Mul(x, x), cubic, linear));
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_MATH_INL_HPP
