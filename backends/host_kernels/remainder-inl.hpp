// The exact remainder of a division on vectors of f32 and f64. It has the bits of fmod() of C.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_REMAINDER_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_REMAINDER_INL_HPP
#undef BACKPLANE_CPU_REMAINDER_INL_HPP
#else
#define BACKPLANE_CPU_REMAINDER_INL_HPP
#endif

#include <cmath>
#include <cstddef>
#include <limits>

#include "backends/host_kernels/exact-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Beyond this quotient the C library computes the remainder, lane by lane. Up to it, products with
// the whole quotient have an exact rounding error.
template <typename T>
constexpr T kMostQuotient = sizeof(T) == 4 ? T{0x1p22} : T{0x1p51};

// Returns fmod(a, b) where `is_rare` is set, and `usual` elsewhere.
template <class D, class V, class M>
HWY_NOINLINE V with_rare_remainders(D d, M is_rare, V usual, V a, V b) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T x[hn::MaxLanes(D())];
  HWY_ALIGN T y[hn::MaxLanes(D())];
  hn::Store(hn::IfThenElseZero(is_rare, a), d, x);
  hn::Store(hn::IfThenElse(is_rare, b, hn::Set(d, T{1})), d, y);
  for (size_t i = 0; i < hn::Lanes(d); ++i) x[i] = std::fmod(x[i], y[i]);
  return hn::IfThenElse(is_rare, hn::Load(d, x), usual);
}

// Returns a - n * b, where n is a / b rounded toward 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V fmod(D d, V a, V b) {
  using T = hn::TFromD<D>;
  const V x = hn::Abs(a), y = hn::Abs(b);
  const V whole = hn::Trunc(hn::Div(x, y));
  // The rounded quotient can be 1 too large.
  V rest = residual(d, x, whole, y);
  rest = hn::IfThenElse(hn::Lt(rest, hn::Zero(d)), hn::Add(rest, y), rest);
  const V result = hn::CopySignToAbs(hn::IfThenElse(hn::Lt(x, y), x, rest), a);
  // NaN, a division by 0 and an infinite x are rare, too. With the largest numbers, the
  // product in residual() could overflow.
  const V most = hn::Set(d, std::numeric_limits<T>::max() / 2);
  const auto is_usual = hn::Lt(x, hn::Min(hn::Mul(y, hn::Set(d, kMostQuotient<T>)), most));
  if (HWY_LIKELY(hn::AllTrue(d, is_usual))) return result;
  return with_rare_remainders(d, hn::Not(is_usual), result, a, b);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_REMAINDER_INL_HPP
