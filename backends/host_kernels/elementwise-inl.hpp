// What the element-wise kernels that ops_spec/emit_highway.py writes are made of: primitives beside
// those of Highway and math-inl.hpp, and row functions by dtype.
//
// Included once per Highway target, by sources that foreach_target.h compiles.
#if defined(BACKPLANE_CPU_ELEMENTWISE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_ELEMENTWISE_INL_HPP
#undef BACKPLANE_CPU_ELEMENTWISE_INL_HPP
#else
#define BACKPLANE_CPU_ELEMENTWISE_INL_HPP
#endif

#include <cstdint>

#include "backends/host_kernels/erfinv-inl.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/rows-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// NaN where either is NaN; `a` where both are equal, so also of two zeros.
template <class D, class V>
HWY_INLINE V larger_of(D, V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    const V larger = hn::IfThenElse(hn::Lt(a, b), b, a);
    return hn::IfThenElse(hn::IsNaN(b), b, larger);
  } else {
    return hn::Max(a, b);
  }
}

// As larger_of().
template <class D, class V>
HWY_INLINE V smaller_of(D, V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    const V smaller = hn::IfThenElse(hn::Lt(b, a), b, a);
    return hn::IfThenElse(hn::IsNaN(b), b, smaller);
  } else {
    return hn::Min(a, b);
  }
}

// larger_of() x and 0. A comparison with NaN is false: it stays.
template <class D, class V>
HWY_INLINE V positive_part(D d, V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

// -|x|.
template <class D, class V>
HWY_INLINE V negative_abs(D d, V x) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::Or(hn::SignBit(d), x);
  } else {
    return hn::Neg(hn::Abs(x));
  }
}

// y = Op()(a, b), which the compiler turns into vectors.
template <class Op, typename T>
struct Compare {
  static void run(int64_t n, uint8_t* HWY_RESTRICT y, const T* left, const T* right) {
    BlockBuffer<Compute<T>> left_buffer, right_buffer;
    const Compute<T>* const HWY_RESTRICT a = widen_block(left, n, left_buffer);
    const Compute<T>* const HWY_RESTRICT b = widen_block(right, n, right_buffer);
    for (int64_t i = 0; i < n; ++i) y[i] = Op()(a[i], b[i]);
  }
};

template <class Op, typename T>
constexpr RowFunction* compare_row() {
  return Row<Compare<Op, T>, uint8_t, T, T>::run;
}

// The row function of Op for a dtype of kNumberDtypes, with a result of this dtype.
template <class Op, int kInputs>
RowFunction* number_row(bp_dtype dtype) {
  return with_number(dtype, []<typename T>(T) { return map_row<Op, T, kInputs>(); });
}

// The same for one of kAnyDtypes, with a result of bool.
template <class Op>
RowFunction* comparison_row(bp_dtype dtype) {
  return with_any(dtype, []<typename T>(T) { return compare_row<Op, T>(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ELEMENTWISE_INL_HPP
