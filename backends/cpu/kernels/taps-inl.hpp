// Rows of a pooling window: blocks of outputs that lie side by side take one tap at a time.
//
// Included once per Highway target, by sources that foreach_target.h compiles.
#if defined(BACKPLANE_CPU_TAPS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_TAPS_INL_HPP
#undef BACKPLANE_CPU_TAPS_INL_HPP
#else
#define BACKPLANE_CPU_TAPS_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/cpu/kernels/lanes-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Outputs that are computed side by side, and room behind them for a whole vector.
constexpr int64_t kOutputs = 512;
constexpr int64_t kOutputsAndVector = kOutputs + 64;

// n elements of a row, `stride` apart, without gaps: where they are, or copied to `buffer`.
template <typename T>
HWY_INLINE const T* tap_elements(const T* from, int64_t stride, int64_t n, T* buffer) {
  if (stride == 1) return from;
  int64_t i = 0;
  if (stride == 2) {
    using Bits = std::conditional_t<sizeof(T) == 2, uint16_t,
                                    std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
    const hn::ScalableTag<Bits> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    // Not the last vector, whose odd elements may lie behind the end.
    for (; i + lanes < n; i += lanes) {
      auto even = hn::Zero(d), odd = hn::Zero(d);
      hn::LoadInterleaved2(d, reinterpret_cast<const Bits*>(from + 2 * i), even, odd);
      hn::StoreU(even, d, reinterpret_cast<Bits*>(buffer + i));
    }
  }
  for (; i < n; ++i) buffer[i] = from[i * stride];
  return buffer;
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_TAPS_INL_HPP
