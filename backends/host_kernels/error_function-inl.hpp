// The error function and its complement on vectors of f32 and f64.
//
//           largest error found, in ulp     how
//           f32           f64
//   erf     1.4           1.4               a polynomial up to 1, then 1 - erfc(x), where f32 takes
//                                           the exponential of a polynomial
//   erfc    4.3           3.6               exp(-x^2) / (1 + 2 x) times a polynomial
//
// These are the errors over targets with fused multiply-add and without it. NaN gives NaN, and
// infinities and zeros give what C says. Each lane is computed by itself.
//
// The polynomials interpolate erf(x) / x - 1 in terms of x^2 for |x| <= 1, and exp(x^2) * (1 + 2 x)
// * erfc(x) in terms of (x - a) / (x + a), at the Chebyshev nodes. The latter function is between 1
// and 1.29 for every x, so that the rounding of the terms hardly counts. The coefficients were
// computed with 100 digits, or 80 for erfc.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_ERROR_FUNCTION_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ERROR_FUNCTION_INL_HPP
#undef BACKPLANE_CPU_ERROR_FUNCTION_INL_HPP
#else
#define BACKPLANE_CPU_ERROR_FUNCTION_INL_HPP
#endif

#include "backends/host_kernels/exact-inl.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// kErfc is exp(x^2) * (1 + 2 x) * erfc(x) in terms of (x - kMiddle) / (x + kMiddle) for x up to
// kMost, where erfc(x) is 0. kErf is erf(x) / x - 1 in terms of x^2 for |x| <= 1. kLogErfc is
// -log(erfc(x)) / x for 1 <= x <= kMostErf.
template <typename T>
struct ErfTraits;

template <>
struct ErfTraits<float> {
  static constexpr float kMost = 10.1f;
  static constexpr float kMiddle = 3.0f;
  static constexpr float kErfc[] = {1.253008f,     -0.13562115f,    -0.04756229f,   0.12964661f,
                                    -0.11927248f,  0.06829337f,     -0.023791349f,  0.0025788452f,
                                    0.0019963759f, -0.00079574925f, -0.00027639026f};
  static constexpr float kErf[] = {0.12837917f,   -0.37612626f,    0.11283594f,  -0.026854211f,
                                   0.0051890872f, -0.00080168643f, 7.875875e-05f};
  static constexpr float kMostErf = 3.95f;  // Beyond it, erf(x) is 1.
  static constexpr float kLogErfc[] = {1.12878062f,     0.634667242f,   0.106935884f,
                                       -0.0242493404f,  0.00378743618f, -0.000314399814f,
                                       -5.35694645e-6f, 3.69452927e-6f, -2.4030751e-7f};
};

template <>
struct ErfTraits<double> {
  static constexpr double kMost = 27.3;
  static constexpr double kMiddle = 4.0;
  static constexpr double kErfc[] = {
      1.2329951186255526,      -0.13962111684056253,    0.015379652102620118,
      0.0680970542546929,      -0.10103906603633002,    0.09373283499833895,
      -0.06633036581152896,    0.037167515537783954,    -0.016197734067285984,
      0.005031969973073959,    -0.0007577732125035627,  -0.0001992566471792197,
      0.00015062129903754625,  -2.4399493781643152e-05, -1.1220855002631528e-05,
      5.71075751406579e-06,    2.915367986557585e-07,   -8.277804488106139e-07,
      7.718084419630176e-08,   1.1336136259211139e-07,  -1.9207427276689796e-08,
      -1.6704018883359422e-08, 1.7032265619585529e-09,  2.1440001129209186e-09,
      3.027743136268787e-10};
  static constexpr double kErf[] = {
      0.1283791670955126,      -0.3761263890318375,     0.11283791670954879,
      -0.026866170645076792,   0.0052239776248180145,   -0.000854832698083379,
      0.0001205533111164271,   -1.4925595266831182e-05, 1.6461000484121368e-06,
      -1.6350312701054695e-07, 1.4659775274047436e-08,  -1.1372848856791674e-09,
      5.957176147748911e-11};
};

// Returns erfc(x) for x >= 0. The rounding error of x^2 is a factor of the power, and the last
// product rounds once also where the result is subnormal.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_of_positive(D d, V x) {
  using T = hn::TFromD<D>;
  using C = ErfTraits<T>;
  const V most = hn::Set(d, C::kMost), capped = hn::IfThenElse(hn::Gt(x, most), most, x);
  const V square = hn::Mul(capped, capped), lost = product_error(d, capped, capped, square);
  const V power = exp_by_exponent<kExpScaleBits>(d, hn::Neg(square));
  const V middle = hn::Set(d, C::kMiddle);
  const V t = hn::Div(hn::Sub(capped, middle), hn::Add(capped, middle));
  const V below = hn::Add(hn::Add(capped, capped), hn::Set(d, T{1}));
  const V factor = quotient(d, polynomial(d, t, C::kErfc), below);
  const V unscale = hn::Set(d, 1 / kExpScale<T>);
  return hn::Mul(hn::NegMulAdd(power, lost, power), hn::Mul(factor, unscale));
}

// Returns erf(x) for |x| <= 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_of_small(D d, V x) {
  return hn::MulAdd(x, polynomial(d, hn::Mul(x, x), ErfTraits<hn::TFromD<D>>::kErf), x);
}

// Returns 1 - erf(x). That sum is the more exact one below 0.5.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc(D d, V x) {
  using T = hn::TFromD<D>;
  const V magnitude = hn::Abs(x);
  const V tail = erfc_of_positive(d, magnitude);
  const V mirrored = hn::Sub(hn::Set(d, T{2}), tail);
  const V large = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), mirrored, tail);
  const auto is_small = hn::Lt(magnitude, hn::Set(d, static_cast<T>(0.5)));
  return hn::IfThenElse(is_small, hn::Sub(hn::Set(d, T{1}), erf_of_small(d, x)), large);
}

// Returns 1 - erf(x) for x >= 1, which is at most 0.16: its error counts for little in the error
// function of f32.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V complement_of_erf(D d, V x) {
  using C = ErfTraits<hn::TFromD<D>>;
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return erfc_of_positive(d, x);
  } else {
    const V most = hn::Set(d, C::kMostErf), capped = hn::IfThenElse(hn::Gt(x, most), most, x);
    const V power =
        exp_by_exponent<0>(d, hn::Mul(hn::Neg(capped), polynomial(d, capped, C::kLogErfc)));
    return hn::IfThenElse(hn::Eq(x, x), power, x);  // A NaN stays.
  }
}

// Returns the error function of x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>{1}), magnitude = hn::Abs(x);
  const auto is_small = hn::Lt(magnitude, one);
  const V small = erf_of_small(d, x);
  if (hn::AllTrue(d, is_small)) return small;
  const V large = hn::CopySign(hn::Sub(one, complement_of_erf(d, magnitude)), x);
  return hn::IfThenElse(is_small, small, large);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ERROR_FUNCTION_INL_HPP
