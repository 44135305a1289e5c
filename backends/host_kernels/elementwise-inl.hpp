// The parts of the element-wise kernels that ops_spec/emit_highway.py writes: primitives that
// Highway and math-inl.hpp lack, and row functions by dtype.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
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

// Returns NaN if a or b is NaN, and `a` if both are equal, which includes two zeros.
template <class D, class V>
HWY_INLINE V larger_of(D, V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    const V larger = hn::IfThenElse(hn::Lt(a, b), b, a);
    return hn::IfThenElse(hn::IsNaN(b), b, larger);
  } else {
    return hn::Max(a, b);
  }
}

// Returns NaN if a or b is NaN, and `a` if both are equal, as larger_of() does.
template <class D, class V>
HWY_INLINE V smaller_of(D, V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    const V smaller = hn::IfThenElse(hn::Lt(b, a), b, a);
    return hn::IfThenElse(hn::IsNaN(b), b, smaller);
  } else {
    return hn::Min(a, b);
  }
}

// Returns larger_of() x and 0. A comparison with NaN is false, so a NaN stays.
template <class D, class V>
HWY_INLINE V positive_part(D d, V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

// Returns -|x|.
template <class D, class V>
HWY_INLINE V negative_abs(D d, V x) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::Or(hn::SignBit(d), x);
  } else {
    return hn::Neg(hn::Abs(x));
  }
}

// Computes y = Op()(a, b) in a loop, which the compiler turns into vectors.
template <class Op, typename T, typename Right>
struct Compare {
  static void run(int64_t n, uint8_t* HWY_RESTRICT y, const T* left, const Right* right) {
    BlockBuffer<Compute<T>> left_buffer, right_buffer;
    const Compute<T>* const HWY_RESTRICT a = widen_block(left, n, left_buffer);
    const Compute<T>* const HWY_RESTRICT b = widen_block(right, n, right_buffer);
    for (int64_t i = 0; i < n; ++i) y[i] = Op()(a[i], b[i]);
  }
};

template <class Op, typename T, typename Right>
constexpr RowFunction* compare_row() {
  return Row<Compare<Op, T, Right>, uint8_t, T, Right>::run;
}

// Returns the row function of Op for a dtype of kNumberDtypes, with a result of this dtype.
template <class Op, int kInputs>
RowFunction* number_row(bp_dtype dtype) {
  return with_number(dtype, []<typename T>(T) { return map_row<Op, T, kInputs>(); });
}

// Return the row function of Op for a dtype of kNumberDtypes or of kFloatDtypes. `is_acc` says that
// the last input is an operand in acc(x).
template <class Op, int kInputs>
RowFunction* number_operand_row(bp_dtype dtype, bool is_acc) {
  return with_number(dtype, [&]<typename T>(T) {
    return is_acc ? operand_row<Op, T, kInputs>() : map_row<Op, T, kInputs>();
  });
}
template <class Op, int kInputs>
RowFunction* floating_operand_row(bp_dtype dtype, bool is_acc) {
  return with_float(dtype, [&]<typename T>(T) {
    return is_acc ? operand_row<Op, T, kInputs>() : map_row<Op, T, kInputs>();
  });
}

// Returns the row function of Op for a dtype of kAnyDtypes, with a result of bool.
template <class Op>
RowFunction* comparison_row(bp_dtype dtype, bool is_acc) {
  return with_any(dtype, [&]<typename T>(T) {
    return is_acc ? compare_row<Op, T, Compute<T>>() : compare_row<Op, T, T>();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ELEMENTWISE_INL_HPP
