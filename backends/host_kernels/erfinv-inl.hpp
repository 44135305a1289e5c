// The inverse of the error function on vectors of f32 and f64, at most 2.7 ulp off.
//
// erfinv(x) / x depends on w = -log(1 - x^2) alone. It is smooth in w if x is small, and smooth in
// the root of w if x is near 1. In each of the two parts a polynomial in the distance from the
// middle of the part interpolates it at the Chebyshev nodes. The coefficients were computed with 90
// digits.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_ERFINV_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ERFINV_INL_HPP
#undef BACKPLANE_CPU_ERFINV_INL_HPP
#else
#define BACKPLANE_CPU_ERFINV_INL_HPP
#endif

#include <limits>

#include "backends/host_kernels/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// The polynomial kSmall is for w up to kSmallMost, around kSmallMiddle. The other constants are for
// the root of w.
template <typename T>
struct ErfinvTraits;

template <>
struct ErfinvTraits<float> {
  static constexpr float kSmallMost = 5.0f;
  static constexpr float kSmallMiddle = 2.5f;
  static constexpr float kSmall[] = {1.5014094f,     0.24664028f,   -0.004177393f,   -0.0012527264f,
                                     0.00021834939f, -4.97242e-06f, -3.4639852e-06f, 4.6813136e-07f,
                                     2.3335968e-08f, -8.931926e-09f};
  static constexpr float kLargeMiddle = 3.125f;
  static constexpr float kLarge[] = {
      2.9583201f,     1.0037187f,    0.0070492504f,   -0.005300703f,   0.0037802393f,
      -0.0025228406f, 0.0013138078f, -0.00031939015f, -0.00017590741f, 0.00012673163f};
};

template <>
struct ErfinvTraits<double> {
  static constexpr double kSmallMost = 6.25, kLargeMost = 4.0;
  static constexpr double kSmallMiddle = 3.125;
  static constexpr double kSmall[] = {
      1.6536545626831027,      0.24015818242558834,    -0.006033670871426851,
      -0.0007407025341546431,  0.00018673420801981186, -1.3882523393957483e-05,
      -1.3654691758785656e-06, 4.23478816822246e-07,   -2.907039127564132e-08,
      -4.1126604371632185e-09, 1.051223377050429e-09,  -5.414303283919504e-11,
      -1.2978805369932565e-11, 2.6305268312595183e-12, -8.07192593899004e-14,
      -4.0020031087558496e-14, 6.521333511502239e-15,  -3.94018812230432e-17,
      -1.2215637192404172e-16, 1.5510787009902526e-17, 6.075050702072414e-19,
      -3.4734793888538036e-19, 1.999259988861535e-20,  3.194015548136271e-21,
      -3.5932028927020693e-22};
  static constexpr double kLargeMiddle = 3.25;
  static constexpr double kLarge[] = {
      3.0838856104922208,     1.0052589676941655,      0.005370914553555033,
      -0.0037512085082247342, 0.00249144209795696,     -0.0016882755354488555,
      0.0009532893415794137,  -0.0003550378137852452,  2.4031512865758357e-05,
      6.828711739251955e-05,  -4.732068066544697e-05,  1.2465028224217455e-05,
      2.93257845538535e-06,   -3.985705945648173e-06,  1.4815977874022539e-06,
      -2.761716223816241e-08, -2.4549818963339823e-07, 1.3158663683192966e-07,
      -2.091453334773126e-08, -1.5305397964152548e-08, 7.680200479077053e-09};
  static constexpr double kLargestMiddle = 5.0625;
  static constexpr double kLargest[] = {
      4.913049587233785,       1.0102806778035605,      -0.0001773033612949483,
      -0.00019677853802492118, 7.010167456817717e-05,   -1.806295233360962e-05,
      4.115357176272387e-06,   -8.872227708499568e-07,  1.9558768226538614e-07,
      -5.231894567419205e-08,  2.0343395283506198e-08,  -1.0319907990345242e-08,
      5.385834989574248e-09,   -2.5208083365866005e-09, 9.842304530389056e-10,
      -3.1531939171908245e-10, 7.957682950449638e-11,   3.000753526266373e-13,
      -1.46441397117492e-11,   4.801222688342719e-12};
};

// Computes the part near 1 from the root of w.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfinv_near_one(D d, V root) {
  using T = hn::TFromD<D>;
  using C = ErfinvTraits<T>;
  const V large = polynomial(d, hn::Sub(root, hn::Set(d, C::kLargeMiddle)), C::kLarge);
  if constexpr (sizeof(T) == 4) {
    return large;
  } else {
    const V largest = polynomial(d, hn::Sub(root, hn::Set(d, C::kLargestMiddle)), C::kLargest);
    return hn::IfThenElse(hn::Lt(root, hn::Set(d, C::kLargeMost)), large, largest);
  }
}

// Returns erfinv(x), which is infinite at -1 and 1, and NaN beyond.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfinv(D d, V x) {
  using T = hn::TFromD<D>;
  using C = ErfinvTraits<T>;
  const V one = hn::Set(d, T{1});
  // The product of the two exact factors keeps the digits of 1 - x^2 if x is near 1.
  const V w = hn::Neg(log(d, hn::Mul(hn::Sub(one, x), hn::Add(one, x))));
  const auto is_small = hn::Lt(w, hn::Set(d, C::kSmallMost));
  V factor = polynomial(d, hn::Sub(w, hn::Set(d, C::kSmallMiddle)), C::kSmall);
  if (!HWY_LIKELY(hn::AllTrue(d, is_small))) {
    factor = hn::IfThenElse(is_small, factor, erfinv_near_one(d, hn::Sqrt(w)));
  }
  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  factor = hn::IfThenElse(hn::Eq(hn::Abs(x), one), infinity, factor);
  return hn::Mul(x, factor);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ERFINV_INL_HPP
