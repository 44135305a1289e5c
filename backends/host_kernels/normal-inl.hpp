// Makes two standard normal numbers from two uniform ones.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_NORMAL_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_NORMAL_INL_HPP
#undef BACKPLANE_CPU_NORMAL_INL_HPP
#else
#define BACKPLANE_CPU_NORMAL_INL_HPP
#endif

#include "backends/host_kernels/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// The series of sin(x) / x and of cos(x) in terms of x^2, for |x| <= pi / 4. The terms left out are
// below half a unit in the last place.
template <typename T>
struct Series {
  static constexpr T kSin[] = {1,
                               -1 / T{6},
                               1 / T{120},
                               -1 / T{5040},
                               1 / T{362880},
                               -1 / T{39916800},
                               1 / T{6227020800},
                               -1 / T{1307674368e3},
                               1 / T{355687428096e3}};
  static constexpr T kCos[] = {1,
                               -1 / T{2},
                               1 / T{24},
                               -1 / T{720},
                               1 / T{40320},
                               -1 / T{3628800},
                               1 / T{479001600},
                               -1 / T{87178291200},
                               1 / T{20922789888e3}};
};
template <>
struct Series<float> {
  static constexpr float kSin[] = {1, -1 / 6.0f, 1 / 120.0f, -1 / 5040.0f, 1 / 362880.0f};
  static constexpr float kCos[] = {1,           -1 / 2.0f,    1 / 24.0f,
                                   -1 / 720.0f, 1 / 40320.0f, -1 / 3628800.0f};
};

// Makes two standard normal numbers from two uniform ones (Box and Muller, 1958). The angle is
// counted in quarter turns, and the nearest whole number of them is subtracted exactly.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void normal_pair(D d, V u1, V u2, V& z1, V& z2) {
  using T = hn::TFromD<D>;
  const V radius = hn::Sqrt(hn::Mul(hn::Set(d, T{-2}), log(d, hn::Sub(hn::Set(d, T{1}), u1))));
  const V turns = hn::Mul(u2, hn::Set(d, T{4}));
  const V whole = hn::Round(turns), x = hn::Sub(turns, whole);
  const V angle = hn::Mul(x, hn::Set(d, static_cast<T>(1.57079632679489661923)));
  const V square = hn::Mul(angle, angle);
  const V s = hn::Mul(angle, polynomial(d, square, Series<T>::kSin));
  const V c = polynomial(d, square, Series<T>::kCos);
  const auto is = [&](int quarter)
                      HWY_ATTR { return hn::Eq(whole, hn::Set(d, static_cast<T>(quarter))); };
  const auto is_odd = hn::Or(is(1), is(3));
  const V cosine = hn::IfThenElse(is_odd, s, c), sine = hn::IfThenElse(is_odd, c, s);
  z1 = hn::Mul(radius, hn::IfThenElse(hn::Or(is(1), is(2)), hn::Neg(cosine), cosine));
  z2 = hn::Mul(radius, hn::IfThenElse(hn::Or(is(2), is(3)), hn::Neg(sine), sine));
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_NORMAL_INL_HPP
