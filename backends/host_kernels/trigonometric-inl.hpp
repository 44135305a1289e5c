// Trigonometric functions on vectors of f32 and f64.
//
//           largest error found, in ulp     how
//           f32           f64
//   sin     0.8           0.8               polynomials for |r| <= pi/4; f32 in pairs or f64
//   cos     0.8           0.8               the same
//   tan     0.6           2.3               sin / cos; f32 in f64
//
// These are the errors over targets with fused multiply-add and without it. NaN gives NaN, and
// infinities and zeros give what C says. Each lane is computed by itself.
//
// The argument is n * pi/2 + r. Up to kMostReduced pi/2 is split so that the products with n are
// exact; arguments beyond it are rare, and the C library computes them lane by lane. The
// polynomials interpolate their functions at the Chebyshev nodes. Their coefficients were computed
// with 100 digits. The functions of f32 take the shorter polynomials and a simpler reduction. If
// the target has fused multiply-add, sines and cosines of f32 up to kMostBrief are computed in f32,
// with r as a pair, unless x is close to a multiple of pi/2.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_TRIGONOMETRIC_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_TRIGONOMETRIC_INL_HPP
#undef BACKPLANE_CPU_TRIGONOMETRIC_INL_HPP
#else
#define BACKPLANE_CPU_TRIGONOMETRIC_INL_HPP
#endif

#include <cmath>
#include <cstdint>

#include "backends/host_kernels/exact-inl.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// The polynomials for results of T, which are computed in f64: kSin is (sin(r) / r - 1) / r^2 and
// kCos is (cos(r) - 1 + r^2 / 2) / r^4, in terms of r^2.
template <typename T>
struct CircleTraits {
  static constexpr double kSin[] = {-0.16666666666666666,    0.008333333333333331,
                                    -0.0001984126984126506,  2.7557319219335453e-06,
                                    -2.5052106231157904e-08, 1.605853141458901e-10,
                                    -7.586685070091267e-13};
  static constexpr double kCos[] = {0.041666666666666664,   -0.0013888888888887395,
                                    2.4801587298763433e-05, -2.7557317270560326e-07,
                                    2.0876146024689747e-09, -1.1382614868556325e-11};
};

template <>
struct CircleTraits<float> {
  static constexpr double kSin[] = {-0.16666666663853044, 0.008333331873837089,
                                    -0.00019840086263755443, 2.7249864655139585e-06};
  static constexpr double kCos[] = {0.04166666465830042, -0.0013888302802309161,
                                    2.454789161981386e-05};
};

// Each part but the last has 33 digits, so that its product with an integer below 2^20 is exact.
constexpr double kHalfPiParts[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2ep-69,
                                   0x1.b839a252049c1p-104};
constexpr double kMostReduced = 1e6;  // n is below 2^20.

// An argument is n * pi/2 + angle, where the low bits of `shifted` contain n.
template <class V>
struct Reduced {
  Pair<V> angle;
  V shifted;
};

// Reduces x for a result of f64. No number of f64 below kMostReduced comes nearer to a multiple of
// pi/2 than 2^-60.5, so the angle needs 114 binary places.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Reduced<V> reduce_angle(D d, V x) {
  const V round = hn::Set(d, ExpTraits<double>::kRound);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0.6366197723675814), round);
  const V n = hn::Sub(shifted, round);
  const V exact = hn::NegMulAdd(n, hn::Set(d, kHalfPiParts[0]), x);
  const Pair<V> second = difference(exact, hn::Mul(n, hn::Set(d, kHalfPiParts[1])));
  const Pair<V> third = difference(second.high, hn::Mul(n, hn::Set(d, kHalfPiParts[2])));
  const V low = hn::Add(second.low, third.low);
  return {sum_of_ordered(third.high, hn::NegMulAdd(n, hn::Set(d, kHalfPiParts[3]), low)), shifted};
}

// Reduces x for a result of f32. No number of f32 below kMostReduced comes nearer to a multiple of
// pi/2 than 2^-28, so two parts of pi/2 are enough.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Reduced<V> reduce_angle_briefly(D d, V x) {
  const V round = hn::Set(d, ExpTraits<double>::kRound);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0.6366197723675814), round);
  const V n = hn::Sub(shifted, round);
  const V exact = hn::NegMulAdd(n, hn::Set(d, kHalfPiParts[0]), x);
  return {{hn::NegMulAdd(n, hn::Set(d, kHalfPiParts[1]), exact), hn::Zero(d)}, shifted};
}

// Reduces x for a result of T.
template <typename T, class D, class V = hn::Vec<D>>
HWY_INLINE Reduced<V> reduce_angle_for(D d, V x) {
  if constexpr (sizeof(T) == 4) {
    return reduce_angle_briefly(d, x);
  } else {
    return reduce_angle(d, x);
  }
}

// Returns the sine of an angle within pi/4.
template <typename T, class D, class V = hn::Vec<D>>
HWY_INLINE V sin_of_angle(D d, Pair<V> angle) {
  const V square = hn::Mul(angle.high, angle.high), cube = hn::Mul(square, angle.high);
  const V low = hn::NegMulAdd(hn::Mul(square, hn::Set(d, 0.5)), angle.low, angle.low);
  return hn::Add(hn::MulAdd(cube, polynomial(d, square, CircleTraits<T>::kSin), low), angle.high);
}

// Returns the cosine of an angle within pi/4.
template <typename T, class D, class V = hn::Vec<D>>
HWY_INLINE V cos_of_angle(D d, Pair<V> angle) {
  const V one = hn::Set(d, 1.0);
  const V square = hn::Mul(angle.high, angle.high), half = hn::Mul(square, hn::Set(d, 0.5));
  const V high = hn::Sub(one, half), lost = hn::Sub(hn::Sub(one, high), half);
  const V low = hn::NegMulAdd(angle.high, angle.low, lost);
  const V tail = polynomial(d, square, CircleTraits<T>::kCos);
  return hn::Add(high, hn::MulAdd(hn::Mul(square, square), tail, low));
}

// Returns sin(x + kQuarters * pi/2) for |x| < kMostReduced, for a result of T.
template <typename T, int kQuarters, class D, class V = hn::Vec<D>>
HWY_INLINE V sin_of_reduced(D d, V x) {
  const hn::RebindToUnsigned<D> bits_d;
  const Reduced<V> reduced = reduce_angle_for<T>(d, x);
  const auto one = hn::Set(bits_d, uint64_t{1});
  const auto n = hn::Add(hn::BitCast(bits_d, reduced.shifted), hn::Set(bits_d, kQuarters));
  const auto is_odd = hn::RebindMask(d, hn::TestBit(n, one));
  const V sign = hn::And(hn::BitCast(d, hn::ShiftLeft<62>(n)), hn::SignBit(d));
  const V sine = sin_of_angle<T>(d, reduced.angle), cosine = cos_of_angle<T>(d, reduced.angle);
  return hn::Xor(hn::IfThenElse(is_odd, cosine, sine), sign);
}

// Returns tan(x) for |x| < kMostReduced, for a result of T.
template <typename T, class D, class V = hn::Vec<D>>
HWY_INLINE V tan_of_reduced(D d, V x) {
  const hn::RebindToUnsigned<D> bits_d;
  const Reduced<V> reduced = reduce_angle_for<T>(d, x);
  const auto n = hn::BitCast(bits_d, reduced.shifted);
  const auto is_odd = hn::RebindMask(d, hn::TestBit(n, hn::Set(bits_d, uint64_t{1})));
  const V sign = hn::BitCast(d, hn::ShiftLeft<63>(n));  // tan(x + pi/2) is -cos(x) / sin(x).
  const V sine = sin_of_angle<T>(d, reduced.angle), cosine = cos_of_angle<T>(d, reduced.angle);
  const V above = hn::IfThenElse(is_odd, cosine, sine);
  const V below = hn::IfThenElse(is_odd, sine, cosine);
  return hn::Xor(hn::Div(above, below), sign);
}

// Functions on vectors of f64, for results of T. `usual` computes arguments up to kMostReduced.
template <typename T>
struct SinOf {
  template <class D, class V>
  HWY_INLINE V usual(D d, V x) const {
    // Tiny arguments are their own sines. This keeps -0.
    const auto is_linear = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-28));
    return hn::IfThenElse(is_linear, x, sin_of_reduced<T, 0>(d, x));
  }
  static double rare(double x) { return std::sin(x); }
};

template <typename T>
struct CosOf {
  template <class D, class V>
  HWY_INLINE V usual(D d, V x) const {
    return sin_of_reduced<T, 1>(d, x);
  }
  static double rare(double x) { return std::cos(x); }
};

template <typename T>
struct TanOf {
  template <class D, class V>
  HWY_INLINE V usual(D d, V x) const {
    const auto is_linear = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-28));
    return hn::IfThenElse(is_linear, x, tan_of_reduced<T>(d, x));
  }
  static double rare(double x) { return std::tan(x); }
};

// Returns a function of the circle. Infinities and NaN take the rare path too.
template <template <typename> class Function, class D, class V = hn::Vec<D>>
HWY_INLINE V of_circle(D d, V x) {
  using T = hn::TFromD<D>;
  const auto function = [](auto wide_d, auto wide) HWY_ATTR {
    const auto is_usual = hn::Lt(hn::Abs(wide), hn::Set(wide_d, kMostReduced));
    const auto usual = Function<T>().usual(wide_d, wide);
    if (HWY_LIKELY(hn::AllTrue(wide_d, is_usual))) return usual;
    return with_rare_lanes(wide_d, hn::Not(is_usual), usual, wide, Function<T>::rare);
  };
  if constexpr (sizeof(T) == 4) {
    return in_f64(d, function, x);
  } else {
    return function(d, x);
  }
}

#if HWY_NATIVE_FMA
// pi/2 in f32, rounded down, and the rest. Up to kMostBrief the rest has enough digits for an angle
// of at least kLeastAngle.
constexpr float kHalfPi = 0x1.921fb4p+0f, kHalfPiRest = 0x1.4442d2p-24f;
constexpr float kMostBrief = 400.0f, kLeastAngle = 0x1p-10f;

// Return the sine and the cosine of an angle within pi/4, which is high - minus_low. The sine of -0
// is -0, because minus_low is +0 then.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V brief_sin_of_angle(D d, V high, V minus_low) {
  constexpr auto& kSin = CircleTraits<float>::kSin;
  constexpr float kMinusSin[] = {static_cast<float>(-kSin[0]), static_cast<float>(-kSin[1]),
                                 static_cast<float>(-kSin[2]), static_cast<float>(-kSin[3])};
  const V square = hn::Mul(high, high), half = hn::Mul(square, hn::Set(d, 0.5f));
  const V factor = hn::NegMulAdd(square, polynomial(d, square, kMinusSin), hn::Zero(d));
  const V low = hn::NegMulAdd(half, minus_low, minus_low);
  return hn::Add(hn::MulSub(high, factor, low), high);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V brief_cos_of_angle(D d, V high, V minus_low) {
  constexpr auto& kCos = CircleTraits<float>::kCos;
  constexpr float kTail[] = {static_cast<float>(kCos[0]), static_cast<float>(kCos[1]),
                             static_cast<float>(kCos[2])};
  const V one = hn::Set(d, 1.0f);
  const V square = hn::Mul(high, high), half = hn::Mul(square, hn::Set(d, 0.5f));
  const V top = hn::Sub(one, half), lost = hn::Sub(hn::Sub(one, top), half);
  const V low = hn::MulAdd(high, minus_low, lost);
  const V tail = polynomial(d, square, kTail);
  return hn::Add(top, hn::MulAdd(hn::Mul(square, square), tail, low));
}

// Returns sin(x + kQuarters * pi/2) of f32, which is Function<float>.
template <template <typename> class Function, int kQuarters, class D, class V = hn::Vec<D>>
HWY_INLINE V brief_sin(D d, V x) {
  const hn::RebindToUnsigned<D> bits_d;
  const V round = hn::Set(d, ExpTraits<float>::kRound), rest = hn::Set(d, kHalfPiRest);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0.63661975f), round), n = hn::Sub(shifted, round);
  const V exact = hn::NegMulAdd(n, hn::Set(d, kHalfPi), x);
  const V high = hn::NegMulAdd(n, rest, exact);
  // If n is 0, the angle is x. A difference of numbers within a factor of 2 is exact.
  const V minus_low = hn::MulAdd(n, rest, hn::Sub(high, exact));
  const V size = hn::Abs(x), least = hn::Min(size, hn::Set(d, kLeastAngle));
  const auto is_brief = hn::And(hn::Lt(size, hn::Set(d, kMostBrief)), hn::Ge(hn::Abs(high), least));
  if (HWY_UNLIKELY(!hn::AllTrue(d, is_brief))) return of_circle<Function>(d, x);
  const auto quarter = hn::Add(hn::BitCast(bits_d, shifted), hn::Set(bits_d, kQuarters));
  const auto is_odd = hn::RebindMask(d, hn::TestBit(quarter, hn::Set(bits_d, 1u)));
  const V sign = hn::And(hn::BitCast(d, hn::ShiftLeft<30>(quarter)), hn::SignBit(d));
  const V sine = brief_sin_of_angle(d, high, minus_low);
  const V cosine = brief_cos_of_angle(d, high, minus_low);
  return hn::Xor(hn::IfThenElse(is_odd, cosine, sine), sign);
}
#endif

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sin(D d, V x) {
#if HWY_NATIVE_FMA
  if constexpr (sizeof(hn::TFromD<D>) == 4) return brief_sin<SinOf, 0>(d, x);
#endif
  return of_circle<SinOf>(d, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V cos(D d, V x) {
#if HWY_NATIVE_FMA
  if constexpr (sizeof(hn::TFromD<D>) == 4) return brief_sin<CosOf, 1>(d, x);
#endif
  return of_circle<CosOf>(d, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tan(D d, V x) {
  return of_circle<TanOf>(d, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_TRIGONOMETRIC_INL_HPP
