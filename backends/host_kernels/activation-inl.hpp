// The activations that follow a product, on vectors. They give the same values as the element-wise
// ops.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_ACTIVATION_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ACTIVATION_INL_HPP
#undef BACKPLANE_CPU_ACTIVATION_INL_HPP
#else
#define BACKPLANE_CPU_ACTIVATION_INL_HPP
#endif

#include <cstdint>

#include "backends/host_kernels/math-inl.hpp"
#include "backplane/ops.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// A comparison with NaN is false, so a NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, uint32_t activation, V x) {
  switch (activation) {
    case BP_LINEAR_ACTIVATION_RELU:
      return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
    case BP_LINEAR_ACTIVATION_GELU:
      return times_normal_cdf(d, x);
    case BP_LINEAR_ACTIVATION_SILU:
      return times_sigmoid(d, x, x);
    default:
      return x;
  }
}

// Applies the activation in place. `line` has room for whole vectors.
template <typename Sum>
HWY_INLINE void activate_line(uint32_t activation, int64_t count, Sum* line) {
  if (activation == BP_LINEAR_ACTIVATION_NONE) return;
  const hn::ScalableTag<Sum> d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(activate(d, activation, hn::LoadU(d, line + i)), d, line + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ACTIVATION_INL_HPP
