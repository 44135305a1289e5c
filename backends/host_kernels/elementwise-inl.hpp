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

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backends/host_kernels/arc-inl.hpp"
#include "backends/host_kernels/erfinv-inl.hpp"
#include "backends/host_kernels/error_function-inl.hpp"
#include "backends/host_kernels/exponential-inl.hpp"
#include "backends/host_kernels/hyperbolic-inl.hpp"
#include "backends/host_kernels/logarithm-inl.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/power-inl.hpp"
#include "backends/host_kernels/remainder-inl.hpp"
#include "backends/host_kernels/rows-inl.hpp"
#include "backends/host_kernels/trigonometric-inl.hpp"
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

// Conditions of one element.
template <typename T>
HWY_INLINE bool is_nan(T x) {
  if constexpr (hwy::IsFloat<T>()) return x != x;
  return false;
}
template <typename T>
HWY_INLINE bool is_infinite(T x) {
  if constexpr (hwy::IsFloat<T>()) return std::fabs(x) == std::numeric_limits<T>::infinity();
  return false;
}
template <typename T>
HWY_INLINE bool is_finite(T x) {
  if constexpr (hwy::IsFloat<T>()) return std::fabs(x) < std::numeric_limits<T>::infinity();
  return true;
}

// Returns x * 2^bits, which wraps; 0 if T has not more bits than that, or `bits` is negative.
template <class D, class V>
HWY_INLINE V shift_left(D d, V x, V bits) {
  const hn::RebindToUnsigned<D> u;
  const auto count = hn::BitCast(u, bits), most = hn::Set(u, 8 * sizeof(hn::TFromD<D>) - 1);
  const auto shifted = hn::Shl(hn::BitCast(u, x), hn::Min(count, most));
  return hn::BitCast(d, hn::IfThenZeroElse(hn::Gt(count, most), shifted));
}

// Returns x / 2^bits, rounded down; 0 or -1, as x is, if T has not more bits than that, or `bits`
// is negative.
template <class D, class V>
HWY_INLINE V shift_right(D d, V x, V bits) {
  const hn::RebindToUnsigned<D> u;
  const auto most = hn::Set(u, 8 * sizeof(hn::TFromD<D>) - 1);
  return hn::Shr(x, hn::BitCast(d, hn::Min(hn::BitCast(u, bits), most)));
}

// Computes integers one by one, because no target divides vectors of them.
template <class D, class V, class Divide>
HWY_INLINE V divided(D d, V a, V b, const Divide& divide) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T left[hn::MaxLanes(d)], right[hn::MaxLanes(d)];
  hn::Store(a, d, left);
  hn::Store(b, d, right);
  for (size_t i = 0; i < hn::Lanes(d); ++i) left[i] = divide(left[i], right[i]);
  return hn::Load(d, left);
}

// Returns the rest of a / b with the sign of a; of integers 0 where b is 0.
template <class D, class V>
HWY_INLINE V rest_of(D d, V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return fmod(d, a, b);
  } else {
    // The rest over -1 is 0, and the quotient of the smallest integer does not exist.
    return divided(d, a, b, [](auto x, auto y) { return y == 0 || y == -1 ? x * 0 : x % y; });
  }
}

// Returns the rest of a / b with the sign of b, that of a where it is 0.
template <class D, class V>
HWY_INLINE V modulo_of(D d, V a, V b) {
  const V rest = rest_of(d, a, b), zero = hn::Zero(d);
  const auto is_other = hn::Xor(hn::Lt(rest, zero), hn::Lt(b, zero));
  const V moved = hn::Add(rest, hn::IfThenElseZero(is_other, b));
  return hn::IfThenElse(hn::Eq(rest, zero), rest, moved);
}

// Returns a / b, rounded, and then rounded down; of integers 0 where b is 0.
template <class D, class V>
HWY_INLINE V floor_quotient(D d, V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::Floor(hn::Div(a, b));
  } else {
    using T = hn::TFromD<D>;
    return divided(d, a, b, [](T x, T y) -> T {
      if (y == 0) return 0;
      if (y == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
      return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
    });
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

// Computes y = Op()(x) in the same way.
template <class Op, typename T>
struct Decide {
  static void run(int64_t n, uint8_t* HWY_RESTRICT y, const T* x) {
    BlockBuffer<Compute<T>> buffer;
    const Compute<T>* const HWY_RESTRICT wide = widen_block(x, n, buffer);
    for (int64_t i = 0; i < n; ++i) y[i] = Op()(wide[i]);
  }
};

// Returns the row function of Op for a dtype of kIntegerDtypes, with a result of this dtype.
template <class Op, int kInputs>
RowFunction* integer_row(bp_dtype dtype) {
  return with_integer(dtype, []<typename T>(T) { return map_row<Op, T, kInputs>(); });
}
template <class Op, int kInputs>
RowFunction* integer_operand_row(bp_dtype dtype, bool is_acc) {
  return with_integer(dtype, [&]<typename T>(T) {
    return is_acc ? operand_row<Op, T, kInputs>() : map_row<Op, T, kInputs>();
  });
}

// Returns the row function of Op for a dtype of kNumberDtypes, with a result of this dtype. An op
// that changes signs alone has a functor on the bits of 16-bit floats.
template <class Op, int kInputs>
RowFunction* number_row(bp_dtype dtype) {
  return with_number(dtype, []<typename T>(T) {
    if constexpr (kIsNarrow<T> && requires { typename Op::OnBits; }) {
      return map_row<typename Op::OnBits, uint16_t, kInputs>();
    } else {
      return map_row<Op, T, kInputs>();
    }
  });
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
template <class Op>
RowFunction* condition_row(bp_dtype dtype) {
  return with_any(
      dtype, []<typename T>(T) -> RowFunction* { return Row<Decide<Op, T>, uint8_t, T>::run; });
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_ELEMENTWISE_INL_HPP
