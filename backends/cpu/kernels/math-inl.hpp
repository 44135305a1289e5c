// Functions on vectors of f32 and f64: what activations, norms and losses are made of.
//
//                    largest error found, in ulp     how
//                    f32           f64
//   exp              1.0           1.0               2^n times a polynomial
//   log              0.9           0.9               Highway's, with the special values put right
//   tanh             2.4           2.4               by exp(2 |x|) - 1
//   sigmoid          2.4           2.3               by exp of -|x|
//   normal_cdf       4 * 2^-24     2.0               rational functions
//
// NaN gives NaN, and infinities give the limits. Each lane is computed by itself.
//
// Polynomials and rational functions interpolate their function at the Chebyshev nodes of the named
// interval, in arithmetic of 60 digits; the one of normal_cdf() in f32 is a least-squares fit.
//
// Included once per Highway target, by sources that foreach_target.h compiles.
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

// c[0] + c[1] x + c[2] x^2 + ...
template <class D, class V, typename T, size_t kCount>
HWY_INLINE V polynomial(D d, V x, const T (&c)[kCount]) {
  V y = hn::Set(d, c[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) y = hn::MulAdd(y, x, hn::Set(d, c[i]));
  return y;
}

// n / q, but for its last bit, where q is a normal number and so is 1 / q. In f32 of AVX-512 an
// approximate reciprocal and one step of Newton's method take less time than the division: gelu of
// 4M f16 710 us on two threads instead of 765.
template <class D, class V>
HWY_INLINE V quotient(D d, V n, V q) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const V reciprocal = hn::ApproximateReciprocal(q);  // Within 2^-14.
    const V first = hn::Mul(n, reciprocal);
    return hn::MulAdd(hn::NegMulAdd(q, first, n), reciprocal, first);
  }
#endif
  static_cast<void>(d);
  return hn::Div(n, q);
}

// Numbers of exp(). Adding kRound to x / ln 2 rounds it to an integer n, which then lies in the low
// bits: kRound is 1.5 * 2^(fraction bits). ln 2 is split so that n * kLn2High is exact.
template <typename T>
struct ExpTraits;

template <>
struct ExpTraits<float> {
  static constexpr int kFractionBits = 23, kBias = 127;
  static constexpr float kRound = 0x1.8p23f, kLog2E = 0x1.715476p0f;
  static constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 3.1946184945309415e-05f;
  static constexpr float kLeast = -105.0f, kMost = 89.0f;  // 0 and infinity.
  static constexpr float kNormal = 87.0f;                  // Below, exp(-x) and exp(x) are normal.
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

// exp(r) for the rest of x beside a multiple of ln 2, and the number in whose low bits that
// multiple stands: `round` is kRound plus what is to be added to it.
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

// exp(x) for x within [kLeast, kMost]. NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_in_range(D d, V x) {
  using E = ExpTraits<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits_d;
  const ExpParts<V> parts = split_exp(d, x, E::kRound + 2 * E::kBias);
  // 2^n in two factors, since it may be none: the result can be subnormal, or beyond 2^bias.
  const auto sum = hn::BitCast(bits_d, parts.shifted);
  const auto half = hn::ShiftRight<1>(sum), rest = hn::Sub(sum, half);
  const V scale = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(half));
  const V scale_rest = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(rest));
  return hn::Mul(hn::Mul(parts.significand, scale), scale_rest);
}

// exp(x) times 2^kBits, where that is no subnormal number. NaN gives anything.
template <int kBits, class D, class V = hn::Vec<D>>
HWY_INLINE V exp_by_exponent(D d, V x) {
  using E = ExpTraits<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits_d;
  const ExpParts<V> parts = split_exp(d, x, E::kRound + kBits);
  const auto exponent = hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, parts.shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(bits_d, parts.significand), exponent));
}

// exp(x) for x <= 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_negative(D d, V x) {
  const V least = hn::Set(d, ExpTraits<hn::TFromD<D>>::kLeast);
  return exp_in_range(d, hn::IfThenElse(hn::Lt(x, least), least, x));
}

// exp(x) times 2^kExpScaleBits, for x <= 0: never subnormal, and so rounded no more than once where
// it is divided by a sum of its kind. NaN gives anything.
constexpr int kExpScaleBits = 64;
template <typename T>
constexpr T kExpScale = static_cast<T>(0x1p64);

template <class D, class V = hn::Vec<D>>
HWY_INLINE V scaled_exp_of_negative(D d, V x) {
  const V least = hn::Set(d, ExpTraits<hn::TFromD<D>>::kLeast);
  return exp_by_exponent<kExpScaleBits>(d, hn::Max(x, least));
}

// Both ways give the same bits.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  using E = ExpTraits<hn::TFromD<D>>;
  const auto is_normal = hn::Lt(hn::Abs(x), hn::Set(d, E::kNormal));
  if (HWY_LIKELY(hn::AllTrue(d, is_normal))) return exp_by_exponent<0>(d, x);
  const V most = hn::Set(d, E::kMost);
  return exp_of_negative(d, hn::IfThenElse(hn::Gt(x, most), most, x));
}

// Highway's polynomial is made for positive finite numbers.
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

// p / (p + 2) with p = exp(2 |x|) - 1, which is made of exp(r) - 1 and 2^n - 1, so that it is exact
// to the last places for every x. Beyond kTanhMost it is 1.
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
  // ln 2 in one number: an error of n * 2^-28 in p hardly moves tanh(x).
  const V r = hn::NegMulAdd(n, hn::Set(d, E::kLn2High + E::kLn2Low), twice);
  const V part = hn::MulAdd(hn::Mul(r, r), polynomial(d, r, E::kTail), r);
  const V scale = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, shifted)));
  const V power = hn::MulAdd(scale, part, hn::Sub(scale, hn::Set(d, T{1})));
  return hn::CopySignToAbs(quotient(d, power, hn::Add(power, hn::Set(d, T{2}))), x);
}

// sigmoid(x) and sigmoid(-x), both without cancellation. NaN gives anything.
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

// x * sigmoid(x), and y * sigmoid(x) in general. NaN gives NaN if y is one too.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V times_sigmoid(D d, V y, V x) {
  const V one = hn::Set(d, kExpScale<hn::TFromD<D>>);
  const V power = scaled_exp_of_negative(d, hn::Or(hn::SignBit(d), x));
  const V part = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), power, one);
  return hn::Mul(y, quotient(d, part, hn::Add(one, power)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V result = times_sigmoid(d, hn::Set(d, hn::TFromD<D>{1}), x);
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

// (P(x) - 1/2) / x in terms of x^2, where P is the distribution function of the standard normal
// distribution: for |x| <= 5.3 in f32, where P is then 0 or 1 within 2^-23, and for |x| <= 1.5 in
// f64.
template <typename T>
struct CdfTraits {
  static constexpr double kMost = 1.5;
  static constexpr double kNumerator[] = {0.3989422804014327,    0.025626666990330813,
                                          0.004037319965668923,  8.535331320811703e-05,
                                          4.396541103027152e-06, 1.78207742025225e-09};
  static constexpr double kDenominator[] = {1.0,
                                            0.2309031947291832,
                                            0.023603926167868508,
                                            0.001351547330873754,
                                            4.404026557151185e-05,
                                            6.675840644112147e-07};
  // exp(x^2 / 2) * P(-x) in terms of x, for 1.5 <= x <= 9; later only P(-x) < 2^-62 suffers.
  static constexpr double kTailNumerator[] = {
      0.4999999377720886,   0.6821345494386932,   0.45685468769431736,   0.18979403893712501,
      0.052457106759146034, 0.009679524616746208, 0.0011195549960149552, 6.557404280239784e-05};
  static constexpr double kTailDenominator[] = {1.0,
                                                2.1621528408758293,
                                                2.138860356464833,
                                                1.271031431995346,
                                                0.49967803363016655,
                                                0.13429674283623247,
                                                0.02442734089737233,
                                                0.002806308186268764,
                                                0.00016436974998156186};
};

template <>
struct CdfTraits<float> {
  static constexpr float kMost = 5.3f;
  static constexpr float kNumerator[] = {0.39894182905661973f, 0.05205304917467261f,
                                         0.005698176173641594f, 0.00034141442020362657f,
                                         6.26080991412423e-06f};
  static constexpr float kDenominator[] = {1.0f,
                                           0.297137022646427f,
                                           0.03881939161317791f,
                                           0.002862352151741116f,
                                           0.0001224520220620703f,
                                           5.295127601609623e-07f};
};

// The distribution function of the standard normal distribution, (1 + erf(x / sqrt(2))) / 2. The
// error is relative to 1 in f32, and to the result in f64.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_cdf(D d, V x) {
  using T = hn::TFromD<D>;
  using C = CdfTraits<T>;
  const V half = hn::Set(d, static_cast<T>(0.5)), magnitude = hn::Abs(x);
  const V square = hn::Mul(x, x);
  const V ratio = quotient(d, hn::Mul(x, polynomial(d, square, C::kNumerator)),
                           polynomial(d, square, C::kDenominator));
  const auto is_outside = hn::Ge(magnitude, hn::Set(d, C::kMost));  // Not NaN.
  if constexpr (sizeof(T) == 4) {
    return hn::Add(half, hn::IfThenElse(is_outside, hn::CopySignToAbs(half, x), ratio));
  } else {
    const V most = hn::Set(d, T{40}), one = hn::Set(d, T{1});
    const V capped = hn::IfThenElse(hn::Gt(magnitude, most), most, magnitude);
    const V density = exp_of_negative(d, hn::Mul(hn::Mul(capped, capped), hn::Neg(half)));
    const V tail = hn::Mul(density, hn::Div(polynomial(d, capped, C::kTailNumerator),
                                            polynomial(d, capped, C::kTailDenominator)));
    const V outside = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
    return hn::IfThenElse(is_outside, outside, hn::Add(half, ratio));
  }
}

// The argument of sigmoid() in gelu(tanh): sqrt(8 / pi) * (x + 0.044715 x^3). Where the sigmoid is
// 0 or 1, x stays at 40, so that the cube does not overflow.
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
