// Rounds vectors of f64 to f32 and to 16-bit floats, each number once.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_ROUNDING_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ROUNDING_INL_HPP
#undef BACKPLANE_CPU_ROUNDING_INL_HPP
#else
#define BACKPLANE_CPU_ROUNDING_INL_HPP
#endif

#include <cstdint>

#include "backends/host_kernels/lanes-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Drops the digits that a normal number of f32 does not have. If any of them was 1, the last digit
// that stays becomes 1, so that a later rounding to fewer digits gives what rounding x gives.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V with_digits_of_f32(D d, V x) {
  const hn::RebindToUnsigned<D> bits_d;
  constexpr uint64_t kLast = uint64_t{1} << 29;
  const auto bits = hn::BitCast(bits_d, x), dropped = hn::Set(bits_d, kLast - 1);
  const auto is_inexact = hn::Ne(hn::And(bits, dropped), hn::Zero(bits_d));
  const auto last = hn::IfThenElseZero(is_inexact, hn::Set(bits_d, kLast));
  return hn::BitCast(d, hn::Or(hn::AndNot(dropped, bits), last));
}

// Stores whole vectors of n numbers as Y, which is computed in f32. It stops at a vector with a
// number that is subnormal in f32, if Y has 16 bits. Returns how many numbers it stored.
template <typename Y>
int64_t store_rounded(const double* from, int64_t n, Y* to) {
  int64_t i = 0;
#if HWY_TARGET == HWY_SCALAR  // Highway would demote infinity to the largest number here.
  static_cast<void>(from), static_cast<void>(n), static_cast<void>(to);
#else
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow_d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    auto x = hn::LoadU(d, from + i);
    if constexpr (kIsNarrow<Y>) {
      const auto size = hn::Abs(x);
      const auto is_tiny = hn::And(hn::Lt(size, hn::Set(d, 0x1p-126)), hn::Gt(size, hn::Zero(d)));
      if (HWY_UNLIKELY(!hn::AllFalse(d, is_tiny))) break;
      x = with_digits_of_f32(d, x);
    }
    store_lanes(hn::DemoteTo(narrow_d, x), narrow_d, to + i);
  }
#endif
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ROUNDING_INL_HPP
