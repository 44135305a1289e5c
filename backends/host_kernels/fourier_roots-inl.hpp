// Arrays and vectors of complex numbers, and tables of roots of unity.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_FOURIER_ROOTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_FOURIER_ROOTS_INL_HPP
#undef BACKPLANE_CPU_FOURIER_ROOTS_INL_HPP
#else
#define BACKPLANE_CPU_FOURIER_ROOTS_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/trigonometric-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Arrays of the real and the imaginary parts of complex numbers.
template <typename C>
struct Parts {
  C *re = nullptr, *im = nullptr;

  Parts operator+(int64_t offset) const { return {re + offset, im + offset}; }
  Parts exchanged() const { return {im, re}; }
};

// A vector of complex numbers.
template <class V>
struct Number {
  V re, im;
};

template <class V>
HWY_INLINE Number<V> add(Number<V> a, Number<V> b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
template <class V>
HWY_INLINE Number<V> sub(Number<V> a, Number<V> b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
template <class V>
HWY_INLINE Number<V> mul(Number<V> a, Number<V> b) {
  return {hn::NegMulAdd(a.im, b.im, hn::Mul(a.re, b.re)),
          hn::MulAdd(a.im, b.re, hn::Mul(a.re, b.im))};
}
// Returns a * -i.
template <class V>
HWY_INLINE Number<V> turned(Number<V> a) {
  return {a.im, hn::Neg(a.re)};
}
// Returns a + factor * b for a real factor.
template <class V>
HWY_INLINE Number<V> add_scaled(Number<V> a, V factor, Number<V> b) {
  return {hn::MulAdd(factor, b.re, a.re), hn::MulAdd(factor, b.im, a.im)};
}

template <class D, typename C>
HWY_INLINE Number<hn::Vec<D>> load_number(D d, Parts<C> from) {
  return {hn::LoadU(d, from.re), hn::LoadU(d, from.im)};
}
template <class D, typename C, class V = hn::Vec<D>>
HWY_INLINE void store_number(Number<V> v, D d, Parts<C> to) {
  hn::StoreU(v.re, d, to.re);
  hn::StoreU(v.im, d, to.im);
}
template <class D, typename C>
HWY_INLINE Number<hn::Vec<D>> set_number(D d, Parts<C> from) {
  return {hn::Set(d, *from.re), hn::Set(d, *from.im)};
}

// ---- Roots ----------------------------------------------------------------------------------- //

// Returns exp(-2 pi i t / turn) for whole numbers t and `turn` below 2^50. 4 t / turn is n + rest /
// turn, where n is whole, and the rest has no error. The angle of the rest is within an eighth of a
// turn, and is kept as a sum of two numbers.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Number<V> root_of_unity(D d, V t, double turn) {
  const hn::RebindToUnsigned<D> bits_d;
  const V whole = hn::Set(d, turn), round = hn::Set(d, ExpTraits<double>::kRound);
  const V shifted = hn::MulAdd(t, hn::Set(d, 4 / turn), round);
  const V rest = hn::NegMulAdd(hn::Sub(shifted, round), whole, hn::Mul(t, hn::Set(d, 4.0)));
  const V share = hn::Div(rest, whole);
  const V lost = hn::Div(hn::NegMulAdd(share, whole, rest), whole);
  const V half_pi = hn::Set(d, 0x1.921fb54442d18p+0), tail = hn::Set(d, 0x1.1a62633145c07p-54);
  const V high = hn::Mul(share, half_pi);
  const V of_tail = hn::MulAdd(share, tail, product_error(d, share, half_pi, high));
  const Pair<V> angle{high, hn::MulAdd(lost, half_pi, of_tail)};
  const V sine = sin_of_angle<double>(d, angle), cosine = cos_of_angle<double>(d, angle);
  const auto n = hn::BitCast(bits_d, shifted);
  const auto is_odd = hn::RebindMask(d, hn::TestBit(n, hn::Set(bits_d, uint64_t{1})));
  // cos(x + n pi / 2) has a minus for n of 1 and 2 modulo 4, and -sin(x + n pi / 2) for 0 and 1.
  const auto sign_of = [&](uint64_t shift) HWY_ATTR {
    const auto moved = hn::Add(n, hn::Set(bits_d, shift));
    return hn::And(hn::BitCast(d, hn::ShiftLeft<62>(moved)), hn::SignBit(d));
  };
  return {hn::Xor(hn::IfThenElse(is_odd, sine, cosine), sign_of(1)),
          hn::Xor(hn::IfThenElse(is_odd, cosine, sine), sign_of(2))};
}

// Writes exp(-2 pi i t / turn) for `count` whole numbers t, which next() gives as doubles.
template <typename C, class Next>
void fill_circle(int64_t count, int64_t turn, const Next& next, Parts<C> to) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN double re[hn::MaxLanes(decltype(d)())], im[hn::MaxLanes(decltype(d)())];
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t part = std::min(lanes, count - i);
    for (int64_t lane = 0; lane < lanes; ++lane) re[lane] = lane < part ? next() : 0;
    store_number(root_of_unity(d, hn::Load(d, re), static_cast<double>(turn)), d,
                 Parts<double>{re, im});
    for (int64_t lane = 0; lane < part; ++lane) {
      to.re[i + lane] = static_cast<C>(re[lane]);
      to.im[i + lane] = static_cast<C>(im[lane]);
    }
  }
}

// Writes exp(-2 pi i k / turn) for k from 0 to count - 1.
template <typename C>
void fill_roots(int64_t count, int64_t turn, Parts<C> to) {
  const int64_t own = turn % 4 == 0 ? std::min(count, turn / 4) : count;
  double k = 0;
  fill_circle(
      own, turn, [&] { return k++; }, to);
  for (int64_t i = own; i < count; ++i) {  // A quarter of a turn is a factor of -i.
    to.re[i] = to.im[i - own];
    to.im[i] = -to.re[i - own];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_FOURIER_ROOTS_INL_HPP
