// Adds a row of elements to a row of sums, for ops whose indices name whole rows.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_ROW_ADDITION_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ROW_ADDITION_INL_HPP
#undef BACKPLANE_CPU_ROW_ADDITION_INL_HPP
#else
#define BACKPLANE_CPU_ROW_ADDITION_INL_HPP
#endif

#include <cstdint>
#include <type_traits>

#include "backends/host_kernels/lanes-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Adds n elements to as many sums. Strides are in elements. If kIsFirst is true, the sums begin
// with 0 instead, so that the sum of a single -0 is 0. A sum is a Compute<T>, or wider.
template <typename Sum, typename T, bool kIsFirst>
HWY_INLINE void add_elements(const T* from, int64_t from_stride, Sum* to, int64_t to_stride,
                             int64_t n) {
  int64_t i = 0;
  if constexpr (std::is_same_v<Sum, Compute<T>>) {
    if (from_stride == 1 && to_stride == 1) {
      const ComputeTag<T> d;
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      for (; i + lanes <= n; i += lanes) {
        const auto sum = kIsFirst ? hn::Zero(d) : hn::LoadU(d, to + i);
        hn::StoreU(hn::Add(sum, load_lanes(d, from + i)), d, to + i);
      }
    }
  }
  for (; i < n; ++i) {
    Sum& sum = to[i * to_stride];
    sum = (kIsFirst ? Sum{0} : sum) + static_cast<Sum>(widen(from[i * from_stride]));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ROW_ADDITION_INL_HPP
