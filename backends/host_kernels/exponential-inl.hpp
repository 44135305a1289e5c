// Exponentials on vectors of f32 and f64.
//
//           largest error found, in ulp     how
//           f32           f64
//   exp2    1.2           1.2               2^n times a polynomial
//   expm1   1.8           2.0               2^n times exp(r) - 1, and 2^n - 1
//
// These are the errors over targets with fused multiply-add and without it. NaN gives NaN, and
// infinities and zeros give what C says. Each lane is computed by itself.
//
// The polynomial of exp2 interpolates its function at the Chebyshev nodes of the named interval.
// Its coefficients were computed with 100 digits.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_EXPONENTIAL_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_EXPONENTIAL_INL_HPP
#undef BACKPLANE_CPU_EXPONENTIAL_INL_HPP
#else
#define BACKPLANE_CPU_EXPONENTIAL_INL_HPP
#endif

#include "backends/host_kernels/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// kTail is (2^r - 1) / r for |r| <= 0.5. Beyond kLeast and kMost the result is 0 and infinity.
template <typename T>
struct Exp2Traits;

template <>
struct Exp2Traits<float> {
  static constexpr float kLeast = -151.0f, kMost = 129.0f;
  static constexpr float kTail[] = {0.6931472f,   0.2402265f,    0.05550357f,
                                    0.009618082f, 0.0013390979f, 0.00015453262f};
};

template <>
struct Exp2Traits<double> {
  static constexpr double kLeast = -1076.0, kMost = 1025.0;
  static constexpr double kTail[] = {
      0.6931471805599453,     0.24022650695910097,   0.0555041086648216,    0.009618129107606715,
      0.0013333558146416842,  0.0001540353044202707, 1.525273382999124e-05, 1.3215442410711872e-06,
      1.0178062351388103e-07, 7.072621356539349e-09, 4.4549794711760616e-10};
};

// Returns significand * 2^n, where the low bits of `shifted` contain n + 2 * kBias. The power is
// two factors, because 2^n itself may be no number of T.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V times_power_of_two(D d, V significand, V shifted) {
  using E = ExpTraits<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits_d;
  const auto sum = hn::BitCast(bits_d, shifted);
  const auto half = hn::ShiftRight<1>(sum), rest = hn::Sub(sum, half);
  const V scale = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(half));
  const V scale_rest = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(rest));
  return hn::Mul(hn::Mul(significand, scale), scale_rest);
}

// Returns 2^x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2(D d, V x) {
  using T = hn::TFromD<D>;
  using E = ExpTraits<T>;
  using C = Exp2Traits<T>;
  const V least = hn::Set(d, C::kLeast), most = hn::Set(d, C::kMost);
  const V above = hn::IfThenElse(hn::Lt(x, least), least, x);
  const V capped = hn::IfThenElse(hn::Gt(above, most), most, above);
  const V round = hn::Set(d, E::kRound + 2 * E::kBias), shifted = hn::Add(capped, round);
  const V r = hn::Sub(capped, hn::Sub(shifted, round));
  const V significand = hn::MulAdd(polynomial(d, r, C::kTail), r, hn::Set(d, T{1}));
  return times_power_of_two(d, significand, shifted);
}

// Below kExpm1Least, expm1(x) is -1. Below kExpm1Linear in magnitude, it is x.
template <typename T>
constexpr T kExpm1Least = sizeof(T) == 4 ? T{-20} : T{-40};
template <typename T>
constexpr T kExpm1Linear = static_cast<T>(sizeof(T) == 4 ? 0x1p-26 : 0x1p-55);

// Returns exp(x) - 1. The sum is computed with half its value, because 2^n itself overflows for the
// largest results.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1(D d, V x) {
  using T = hn::TFromD<D>;
  using E = ExpTraits<T>;
  const hn::RebindToUnsigned<D> bits_d;
  const V least = hn::Set(d, kExpm1Least<T>), most = hn::Set(d, E::kMost);
  const V above = hn::IfThenElse(hn::Lt(x, least), least, x);
  const V capped = hn::IfThenElse(hn::Gt(above, most), most, above);
  const V round = hn::Set(d, E::kRound + (E::kBias - 1));
  const V shifted = hn::MulAdd(capped, hn::Set(d, E::kLog2E), round);
  const V n = hn::Sub(shifted, round);
  const V high = hn::NegMulAdd(n, hn::Set(d, E::kLn2High), capped);
  const V r = hn::NegMulAdd(n, hn::Set(d, E::kLn2Low), high);
  const V part = hn::MulAdd(hn::Mul(r, r), polynomial(d, r, E::kTail), r);
  const V scale = hn::BitCast(d, hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, shifted)));
  const V half = hn::MulAdd(scale, part, hn::Sub(scale, hn::Set(d, static_cast<T>(0.5))));
  const auto is_linear = hn::Lt(hn::Abs(x), hn::Set(d, kExpm1Linear<T>));
  return hn::IfThenElse(is_linear, x, hn::Add(half, half));
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_EXPONENTIAL_INL_HPP
