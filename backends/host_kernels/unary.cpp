// neg, abs, exp, log, sqrt, relu and relu_backward, for tensors of every layout.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/unary.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/rows-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

struct Neg {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V x) const {
    return hn::Neg(x);
  }
};

// The smallest integer wraps to itself.
struct Abs {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V x) const {
    return hn::Abs(x);
  }
};

struct Exp {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V x) const {
    return exp(d, x);
  }
};

struct Log {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V x) const {
    return log(d, x);
  }
};

struct Sqrt {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V x) const {
    return hn::Sqrt(x);
  }
};

// A comparison with NaN is false: it stays.
struct Relu {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  }
};

struct ReluBackward {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V grad_y, V y) const {
    return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), grad_y);
  }
};

template <class Op>
RowFunction* signed_row(bp_dtype dtype) {
  if (dtype == BP_I32) return map_row<Op, int32_t, 1>();
  if (dtype == BP_I64) return map_row<Op, int64_t, 1>();
  return floating_row<Op, 1>(dtype);
}

// The function of `op` for `dtype`, which the claims limit to those below.
RowFunction* unary_row(uint32_t op, bp_dtype dtype) {
  switch (op) {
    case BP_OP_NEG:
      return signed_row<Neg>(dtype);
    case BP_OP_ABS:
      return signed_row<Abs>(dtype);
    case BP_OP_EXP:
      return floating_row<Exp, 1>(dtype);
    case BP_OP_LOG:
      return floating_row<Log, 1>(dtype);
    case BP_OP_SQRT:
      return floating_row<Sqrt, 1>(dtype);
    case BP_OP_RELU:
      return floating_row<Relu, 1>(dtype);
    default:
      return floating_row<ReluBackward, 2>(dtype);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(unary_row);

template <typename Args, uint32_t kOp>
bp_status unary_launch(const Args& args, Launch& launch) {
  constexpr bool kIsMath = kOp == BP_OP_EXP || kOp == BP_OP_LOG;
  return submit_rows(launch, make_loop({args.y, args.x}),
                     HWY_DYNAMIC_DISPATCH(unary_row)(kOp, args.x->dtype),
                     kIsMath ? kMathGrain : kGrain);
}

bp_status relu_backward_launch(const bp_relu_backward_args& args, Launch& launch) {
  return submit_rows(launch, make_loop({args.grad_x, args.grad_y, args.y}),
                     HWY_DYNAMIC_DISPATCH(unary_row)(BP_OP_RELU_BACKWARD, args.y->dtype), kGrain);
}

constexpr bp_dtype kSigned[] = {BP_F32, BP_F64, BP_F16, BP_BF16, BP_I32, BP_I64};

template <size_t kCount>
constexpr bp_kernel unary_row_of_table(const char* name, uint32_t op,
                                       const bp_dtype (&dtypes)[kCount]) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_IN_PLACE,
      .dtype_rows = dtypes,
      .dtype_row_count = kCount,
      .dtype_count = 1,
      .layouts = BP_LAYOUT_ANY,
  };
}

template <typename Args, uint32_t kOp, size_t kCount>
constexpr bp_kernel unary_kernel(const char* name, const bp_dtype (&dtypes)[kCount]) {
  return make_kernel<Args, unary_launch<Args, kOp>>(unary_row_of_table(name, kOp, dtypes));
}

}  // namespace

constinit const bp_kernel kNeg = unary_kernel<bp_neg_args, BP_OP_NEG>("neg", kSigned);
constinit const bp_kernel kAbs = unary_kernel<bp_abs_args, BP_OP_ABS>("abs", kSigned);
constinit const bp_kernel kExp = unary_kernel<bp_exp_args, BP_OP_EXP>("exp", kFloatDtypes);
constinit const bp_kernel kLog = unary_kernel<bp_log_args, BP_OP_LOG>("log", kFloatDtypes);
constinit const bp_kernel kSqrt = unary_kernel<bp_sqrt_args, BP_OP_SQRT>("sqrt", kFloatDtypes);
constinit const bp_kernel kRelu = unary_kernel<bp_relu_args, BP_OP_RELU>("relu", kFloatDtypes);
constinit const bp_kernel kReluBackward = make_kernel<bp_relu_backward_args, relu_backward_launch>(
    unary_row_of_table("relu_backward", BP_OP_RELU_BACKWARD, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
