// add, sub, mul, div, maximum and eq, for tensors of every layout.
//
// Rows are vectorised where the result is dense and each operand is dense or one value; other
// strides run one element at a time. Body and tail use the same operations, so an element does not
// depend on where it lies.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/binary.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "backends/cpu/kernels/loop.hpp"
#include "backends/cpu/kernels/scalar.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

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

template <bool kIsDense, class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* from, int64_t i) {
  if constexpr (kIsDense) return hn::LoadU(d, from + i);
  return hn::Set(d, *from);
}

template <class Op, typename T, bool kIsDenseA, bool kIsDenseB>
void dense_row(T* y, const T* a, const T* b, int64_t n) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(Op()(d, load<kIsDenseA>(d, a, i), load<kIsDenseB>(d, b, i)), d, y + i);
  }
  for (; i < n; ++i) {
    hn::StoreU(Op()(one, load<kIsDenseA>(one, a, i), load<kIsDenseB>(one, b, i)), one, y + i);
  }
}

// data and strides are those of (y, a, b).
template <class Op, typename T>
void row(std::byte* const* data, const int64_t* strides, int64_t n, const void*) {
  constexpr int64_t kDense = sizeof(T);
  T* y = reinterpret_cast<T*>(data[0]);
  const T* a = reinterpret_cast<const T*>(data[1]);
  const T* b = reinterpret_cast<const T*>(data[2]);
  if (strides[0] == kDense && strides[1] == kDense && strides[2] == kDense) {
    return dense_row<Op, T, true, true>(y, a, b, n);
  }
  if (strides[0] == kDense && strides[1] == kDense && strides[2] == 0) {
    return dense_row<Op, T, true, false>(y, a, b, n);
  }
  if (strides[0] == kDense && strides[1] == 0 && strides[2] == kDense) {
    return dense_row<Op, T, false, true>(y, a, b, n);
  }
  for (int64_t i = 0; i < n; ++i) {
    dense_row<Op, T, true, true>(reinterpret_cast<T*>(data[0] + i * strides[0]),
                                 reinterpret_cast<const T*>(data[1] + i * strides[1]),
                                 reinterpret_cast<const T*>(data[2] + i * strides[2]), 1);
  }
}

template <typename T>
void eq_row(std::byte* const* data, const int64_t* strides, int64_t n, const void*) {
  constexpr int64_t kDense = sizeof(T);
  auto* y = reinterpret_cast<uint8_t*>(data[0]);
  const T* a = reinterpret_cast<const T*>(data[1]);
  const T* b = reinterpret_cast<const T*>(data[2]);
  if (strides[0] == 1 && strides[1] == kDense && strides[2] == kDense) {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] == b[i];
  } else if (strides[0] == 1 && strides[1] == kDense && strides[2] == 0) {
    const T value = *b;
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] == value;
  } else {
    for (int64_t i = 0; i < n; ++i) {
      *reinterpret_cast<uint8_t*>(data[0] + i * strides[0]) =
          *reinterpret_cast<const T*>(data[1] + i * strides[1]) ==
          *reinterpret_cast<const T*>(data[2] + i * strides[2]);
    }
  }
}

template <class Op>
RowFunction* arithmetic_row(bp_dtype dtype) {
  switch (dtype) {
    case BP_F32:
      return row<Op, float>;
    case BP_F64:
      return row<Op, double>;
    case BP_I32:
      return row<Op, int32_t>;
    default:
      return row<Op, int64_t>;
  }
}

RowFunction* row_of_eq(bp_dtype dtype) {
  switch (dtype) {
    case BP_F32:
      return eq_row<float>;
    case BP_F64:
      return eq_row<double>;
    case BP_I16:
      return eq_row<int16_t>;
    case BP_I32:
      return eq_row<int32_t>;
    case BP_I64:
      return eq_row<int64_t>;
    default:
      return eq_row<uint8_t>;
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
    case BP_OP_DIV:
      return dtype == BP_F32 ? row<Div, float> : row<Div, double>;
    default:
      return row_of_eq(dtype);
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
  RowFunction* const row = HWY_DYNAMIC_DISPATCH(binary_row)(kOp, args.a->dtype);
  return launch.submit([loop = make_loop({args.y, args.a, args.b}, scalar), row,
                        threads = launch.thread_count()] { run_loop(loop, row, threads, kGrain); });
}

constexpr bp_dtype kArithmetic[] = {BP_F32, BP_F64, BP_I32, BP_I64};
constexpr bp_dtype kFloating[] = {BP_F32, BP_F64};
constexpr bp_dtype kAny[] = {BP_BOOL, BP_U8, BP_I8, BP_I16, BP_I32, BP_I64, BP_F32, BP_F64};

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
constinit const bp_kernel kDiv = binary_kernel<bp_div_args, BP_OP_DIV>("div", kFloating);
constinit const bp_kernel kMaximum =
    binary_kernel<bp_maximum_args, BP_OP_MAXIMUM>("maximum", kArithmetic);
constinit const bp_kernel kEq = binary_kernel<bp_eq_args, BP_OP_EQ>("eq", kAny);

}  // namespace bp::kernels
#endif  // HWY_ONCE
