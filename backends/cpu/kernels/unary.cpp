// neg, exp, log, sqrt, relu and relu_backward, for tensors of every layout.
//
// exp and log are Highway's polynomials with the special values put right: its exp is made for
// arguments up to 104 (f32) and 706 (f64), its log for positive finite ones. The largest errors
// found among a fifth of all f32 and among 6 * 10^7 f64: exp 1.02 and 1.03 ulp, log 0.89 and 0.91
// ulp.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/unary.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <limits>

#include "backends/cpu/kernels/rows-inl.hpp"
#include "hwy/contrib/math/math-inl.h"
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
    using T = hn::TFromD<D>;
    // exp() of these is infinity and 0; beyond them the polynomial's integers overflow.
    constexpr bool kIsF32 = sizeof(T) == 4;
    const V most = hn::Set(d, static_cast<T>(kIsF32 ? 89.0 : 710.0));
    const V least = hn::Set(d, static_cast<T>(kIsF32 ? -105.0 : -750.0));
    const V result = hn::Exp(d, hn::Max(hn::Min(x, most), least));
    return hn::IfThenElse(hn::IsNaN(x), x, result);
  }
};

struct Log {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    using Limits = std::numeric_limits<T>;
    const V zero = hn::Zero(d), infinity = hn::Set(d, Limits::infinity());
    V result = hn::Log(d, x);
    result = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), result);
    result = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, Limits::quiet_NaN()), result);
    // Infinity and NaN are their own logarithms.
    return hn::IfThenElse(hn::Lt(x, infinity), result, hn::Add(x, x));
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

// `kInputs` tensors of T, to one of T.
template <class Op, typename T, int kInputs = 1>
constexpr RowFunction* map_row() {
  if constexpr (kInputs == 1) {
    return Row<Map<Op, T>, T, T>::run;
  } else {
    return Row<Map<Op, T>, T, T, T>::run;
  }
}

template <class Op, int kInputs = 1>
RowFunction* floating_row(bp_dtype dtype) {
  switch (dtype) {
    case BP_F32:
      return map_row<Op, float, kInputs>();
    case BP_F16:
      return map_row<Op, Float16, kInputs>();
    case BP_BF16:
      return map_row<Op, BFloat16, kInputs>();
    default:
      return map_row<Op, double, kInputs>();
  }
}

template <class Op>
RowFunction* signed_row(bp_dtype dtype) {
  if (dtype == BP_I32) return map_row<Op, int32_t>();
  if (dtype == BP_I64) return map_row<Op, int64_t>();
  return floating_row<Op>(dtype);
}

// The function of `op` for `dtype`, which the claims limit to those below.
RowFunction* unary_row(uint32_t op, bp_dtype dtype) {
  switch (op) {
    case BP_OP_NEG:
      return signed_row<Neg>(dtype);
    case BP_OP_ABS:
      return signed_row<Abs>(dtype);
    case BP_OP_EXP:
      return floating_row<Exp>(dtype);
    case BP_OP_LOG:
      return floating_row<Log>(dtype);
    case BP_OP_SQRT:
      return floating_row<Sqrt>(dtype);
    case BP_OP_RELU:
      return floating_row<Relu>(dtype);
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

// Elements below which one thread is faster; exp and log take about ten times a move.
constexpr int64_t kMathGrain = 4096;

bp_status submit_rows(Launch& launch, const Loop& loop, RowFunction* row, int64_t grain) {
  return launch.submit(
      [loop, row, grain, options = choose_row_options(loop), threads = launch.thread_count()] {
        run_loop(loop, row, threads, grain, &options);
      });
}

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

constexpr bp_dtype kFloating[] = {BP_F32, BP_F64, BP_F16, BP_BF16};
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
constinit const bp_kernel kExp = unary_kernel<bp_exp_args, BP_OP_EXP>("exp", kFloating);
constinit const bp_kernel kLog = unary_kernel<bp_log_args, BP_OP_LOG>("log", kFloating);
constinit const bp_kernel kSqrt = unary_kernel<bp_sqrt_args, BP_OP_SQRT>("sqrt", kFloating);
constinit const bp_kernel kRelu = unary_kernel<bp_relu_args, BP_OP_RELU>("relu", kFloating);
constinit const bp_kernel kReluBackward = make_kernel<bp_relu_backward_args, relu_backward_launch>(
    unary_row_of_table("relu_backward", BP_OP_RELU_BACKWARD, kFloating));

}  // namespace bp::kernels
#endif  // HWY_ONCE
