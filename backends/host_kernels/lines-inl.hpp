// Converts lines of elements of any dtype and stride from and to the dtype of sums. Sum is float
// for f16, bf16 and f32, and double for f64.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_LINES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_LINES_INL_HPP
#undef BACKPLANE_CPU_LINES_INL_HPP
#else
#define BACKPLANE_CPU_LINES_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/lanes-inl.hpp"
#include "backplane/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Calls fn(T{}) for the element type of `dtype`. Throws StatusError of BP_UNSUPPORTED if sums
// of `dtype` are not kept in Sum.
template <typename Sum, typename Fn>
void with_element_of(bp_dtype dtype, const Fn& fn) {
  with_float(dtype, [&]<typename T>(T element) {
    if constexpr (std::is_same_v<Compute<T>, Sum>) {
      fn(element);
    } else {
      throw StatusError(BP_UNSUPPORTED, "sums of dtype " + std::to_string(dtype) +
                                            " are kept in another precision");
    }
  });
}

// The number of elements of a stack buffer in which lines are gathered.
constexpr int64_t kGatherElements = 64;

template <typename Sum, typename T>
HWY_INLINE void load_dense_line(const T* from, int64_t count, Sum* HWY_RESTRICT to) {
  const hn::ScalableTag<Sum> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_lanes(d, from + i), d, to + i);
  if (i == count) return;
  const auto rest = static_cast<size_t>(count - i);
  store_lanes_n(load_lanes_n(d, from + i, rest), d, to + i, rest);
}

// Converts `count` elements, `stride` elements apart, into `to`.
template <typename Sum, typename T>
HWY_INLINE void load_line(const T* from, int64_t stride, int64_t count, Sum* HWY_RESTRICT to) {
  if (stride == 1) return load_dense_line(from, count, to);
  if constexpr (std::is_same_v<Sum, T>) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  } else {
    T gathered[kGatherElements];
    for (int64_t begin = 0; begin < count; begin += kGatherElements) {
      const int64_t part = std::min(kGatherElements, count - begin);
      for (int64_t i = 0; i < part; ++i) gathered[i] = from[(begin + i) * stride];
      load_dense_line(gathered, part, to + begin);
    }
  }
}

template <typename Sum, typename T>
HWY_INLINE void store_dense_line(const Sum* HWY_RESTRICT from, int64_t count, T* to) {
  const hn::ScalableTag<Sum> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store_lanes(hn::LoadU(d, from + i), d, to + i);
  if (i == count) return;
  const auto rest = static_cast<size_t>(count - i);
  store_lanes_n(load_lanes_n(d, from + i, rest), d, to + i, rest);
}

// Rounds `count` sums to elements `stride` apart.
template <typename Sum, typename T>
HWY_INLINE void store_line(const Sum* HWY_RESTRICT from, int64_t count, T* to, int64_t stride) {
  if (stride == 1) return store_dense_line(from, count, to);
  if constexpr (std::is_same_v<Sum, T>) {
    for (int64_t i = 0; i < count; ++i) to[i * stride] = from[i];
  } else {
    T rounded[kGatherElements];
    for (int64_t begin = 0; begin < count; begin += kGatherElements) {
      const int64_t part = std::min(kGatherElements, count - begin);
      store_dense_line(from + begin, part, rounded);
      for (int64_t i = 0; i < part; ++i) to[(begin + i) * stride] = rounded[i];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_LINES_INL_HPP
