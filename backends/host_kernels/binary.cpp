// add, sub, mul, div, maximum, minimum, eq and lt, for tensors of every layout.
//
// Rows run on vectors whatever their strides (rows-inl.hpp).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/binary.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "backends/host_kernels/rows-inl.hpp"
#include "backends/host_kernels/scalar.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

struct Add {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Sub {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Sub(a, b);
  }
};

struct Mul {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};

struct Div {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Div(a, b);
  }
};

// NaN where either is NaN; `a` where both are equal, so also of two zeros.
struct Maximum {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const V larger = hn::IfThenElse(hn::Lt(a, b), b, a);
      return hn::IfThenElse(hn::IsNaN(b), b, larger);
    } else {
      return hn::Max(a, b);
    }
  }
};

// As Maximum.
struct Minimum {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const V smaller = hn::IfThenElse(hn::Lt(b, a), b, a);
      return hn::IfThenElse(hn::IsNaN(b), b, smaller);
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Eq {
  template <typename T>
  HWY_INLINE bool operator()(T a, T b) const {
    return a == b;
  }
};

struct Lt {
  template <typename T>
  HWY_INLINE bool operator()(T a, T b) const {
    return a < b;
  }
};

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

template <class Op>
RowFunction* arithmetic_row(bp_dtype dtype) {
  if (dtype == BP_I32) return map_row<Op, int32_t, 2>();
  if (dtype == BP_I64) return map_row<Op, int64_t, 2>();
  return floating_row<Op, 2>(dtype);
}

template <class Op>
RowFunction* comparison_row(bp_dtype dtype) {
  switch (dtype) {
    case BP_F32:
      return compare_row<Op, float>();
    case BP_F64:
      return compare_row<Op, double>();
    case BP_F16:
      return compare_row<Op, Float16>();
    case BP_BF16:
      return compare_row<Op, BFloat16>();
    case BP_I8:
      return compare_row<Op, int8_t>();
    case BP_I16:
      return compare_row<Op, int16_t>();
    case BP_I32:
      return compare_row<Op, int32_t>();
    case BP_I64:
      return compare_row<Op, int64_t>();
    default:
      return compare_row<Op, uint8_t>();
  }
}

// The function of `op` for `dtype`, which the claims limit to those below.
RowFunction* binary_row(uint32_t op, bp_dtype dtype) {
  switch (op) {
    case BP_OP_ADD:
      return arithmetic_row<Add>(dtype);
    case BP_OP_SUB:
      return arithmetic_row<Sub>(dtype);
    case BP_OP_MUL:
      return arithmetic_row<Mul>(dtype);
    case BP_OP_MAXIMUM:
      return arithmetic_row<Maximum>(dtype);
    case BP_OP_MINIMUM:
      return arithmetic_row<Minimum>(dtype);
    case BP_OP_LT:
      return comparison_row<Lt>(dtype);
    case BP_OP_DIV:
      return floating_row<Div, 2>(dtype);
    default:
      return comparison_row<Eq>(dtype);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(binary_row);

template <typename Args, uint32_t kOp>
bp_status binary_launch(const Args& args, Launch& launch) {
  const uint64_t scalar = args.b == nullptr ? convert_scalar(args.b_scalar, args.a->dtype) : 0;
  const Loop loop = make_loop({args.y, args.a, args.b}, scalar);
  RowFunction* const row = HWY_DYNAMIC_DISPATCH(binary_row)(kOp, args.a->dtype);
  return submit_rows(launch, loop, row, kGrain);
}

constexpr bp_dtype kArithmetic[] = {BP_F32, BP_F64, BP_F16, BP_BF16, BP_I32, BP_I64};
constexpr bp_kernel_flags kFlags =
    BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR;

template <typename Args, uint32_t kOp, size_t kCount>
constexpr bp_kernel binary_kernel(const char* name, const bp_dtype (&dtypes)[kCount]) {
  return make_kernel<Args, binary_launch<Args, kOp>>({
      .name = name,
      .op = kOp,
      .flags = kFlags,
      .dtype_rows = dtypes,
      .dtype_row_count = kCount,
      .dtype_count = 1,
      .layouts = BP_LAYOUT_ANY,
  });
}

}  // namespace

constinit const bp_kernel kAdd = binary_kernel<bp_add_args, BP_OP_ADD>("add", kArithmetic);
constinit const bp_kernel kSub = binary_kernel<bp_sub_args, BP_OP_SUB>("sub", kArithmetic);
constinit const bp_kernel kMul = binary_kernel<bp_mul_args, BP_OP_MUL>("mul", kArithmetic);
constinit const bp_kernel kDiv = binary_kernel<bp_div_args, BP_OP_DIV>("div", kFloatDtypes);
constinit const bp_kernel kMaximum =
    binary_kernel<bp_maximum_args, BP_OP_MAXIMUM>("maximum", kArithmetic);
constinit const bp_kernel kMinimum =
    binary_kernel<bp_minimum_args, BP_OP_MINIMUM>("minimum", kArithmetic);
constinit const bp_kernel kLt = binary_kernel<bp_lt_args, BP_OP_LT>("lt", kAnyDtypes);
constinit const bp_kernel kEq = binary_kernel<bp_eq_args, BP_OP_EQ>("eq", kAnyDtypes);

}  // namespace bp::kernels
#endif  // HWY_ONCE
