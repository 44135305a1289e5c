// gelu and its gradient, for tensors of every layout.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/activation.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/rows-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Returns times_normal_cdf() for a result that is rounded to 16 bits. The rational function is that
// of TailTraits with one term less in both parts, and its numerator has the factor 1 / kExpScale.
// The error before the rounding is at most 2^-19.5 of the result for |x| <= 5.5, below which f16
// has only 0, and at most 2^-17.6 for other bf16.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V narrow_times_normal_cdf(D d, V x) {
  using E = ExpTraits<float>;
  constexpr float kUnit = 1 / kExpScale<float>;
  constexpr float kNumerator[] = {0.49999977f * kUnit, 0.366253225f * kUnit, 0.122035427f * kUnit,
                                  0.0176516865f * kUnit};
  constexpr float kDenominator[] = {1.0f, 1.53036795f, 0.965308927f, 0.305726855f, 0.0442501734f};
  // (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2.
  constexpr float kTail[] = {0.49999749f, 0.166666308f, 0.0418338041f, 0.00835720015f};
  const hn::RebindToUnsigned<D> bits_d;
  const V one = hn::Set(d, 1.0f), round = hn::Set(d, E::kRound + kExpScaleBits);
  const V magnitude = hn::Min(hn::Abs(x), hn::Set(d, TailTraits<float>::kMost));
  const V square = hn::Mul(magnitude, magnitude);
  const V shifted = hn::MulAdd(square, hn::Set(d, -0.5f * E::kLog2E), round);
  const V n = hn::Sub(shifted, round), half = hn::Mul(square, hn::Set(d, -0.5f));
  const V r = hn::NegMulAdd(n, hn::Set(d, E::kLn2High + E::kLn2Low), half);
  const V significand = hn::MulAdd(hn::MulAdd(polynomial(d, r, kTail), r, one), r, one);
  const auto exponent = hn::ShiftLeft<E::kFractionBits>(hn::BitCast(bits_d, shifted));
  const V power = hn::BitCast(d, hn::Add(hn::BitCast(bits_d, significand), exponent));
  const V factor =
      quotient(d, polynomial(d, magnitude, kNumerator), polynomial(d, magnitude, kDenominator));
  const V lacking = hn::Mul(hn::Mul(magnitude, power), factor);
  return hn::Sub(hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x), lacking);  // A NaN stays.
}

struct Gelu {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V x) const {
    return times_normal_cdf(d, x);
  }
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V narrow(D d, V x) const {
    return narrow_times_normal_cdf(d, x);
  }
};

struct GeluBackward {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V grad_y, V x) const {
    return hn::Mul(grad_y, normal_cdf_slope(d, x));
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u).
struct GeluTanh {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V x) const {
    return times_sigmoid(d, x, gelu_argument(d, x));
  }
};

// With s = sigmoid(v) and v = 2 u, the derivative is s + x * s * (1 - s) * v'. If |x| is above 40,
// s is 0 or 1, and x is limited to 40, so that v' does not overflow.
struct GeluTanhBackward {
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V grad_y, V x) const {
    using T = hn::TFromD<D>;
    const V most = hn::Set(d, T{40});
    const V capped = hn::IfThenElse(hn::Gt(hn::Abs(x), most), hn::CopySignToAbs(most, x), x);
    const auto s = sigmoid_pair(d, gelu_argument(d, capped));
    const V slope = hn::MulAdd(hn::Mul(capped, capped),
                               hn::Set(d, static_cast<T>(3 * 0.044715 * 1.5957691216057308)),
                               hn::Set(d, static_cast<T>(1.5957691216057308)));
    const V bend = hn::Mul(hn::Mul(s.of_x, s.of_minus_x), hn::Mul(capped, slope));
    return hn::Mul(grad_y, hn::Add(s.of_x, bend));
  }
};

// Returns the function of `op` for `dtype`, which is one of kFloatDtypes.
RowFunction* activation_row(uint32_t op, bool is_tanh, bp_dtype dtype) {
  switch (op) {
    case BP_OP_GELU:
      return is_tanh ? floating_row<GeluTanh, 1>(dtype) : floating_row<Gelu, 1>(dtype);
    default:
      return is_tanh ? floating_row<GeluTanhBackward, 2>(dtype)
                     : floating_row<GeluBackward, 2>(dtype);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(activation_row);

template <typename Args, uint32_t kOp>
bp_status activation_launch(const Args& args, Launch& launch) {
  const bool is_tanh = args.approximation == BP_GELU_APPROXIMATION_TANH;
  if (!is_tanh && args.approximation != BP_GELU_APPROXIMATION_NONE) {
    const std::string op = kOp == BP_OP_GELU ? "gelu" : "gelu_backward";
    return launch.refuse(BP_INVALID_ARGUMENT, op + ": approximation is " +
                                                  std::to_string(args.approximation) +
                                                  "; none (1) and tanh (2) are allowed");
  }
  RowFunction* const row = HWY_DYNAMIC_DISPATCH(activation_row)(kOp, is_tanh, args.x->dtype);
  if constexpr (requires { args.grad_x; }) {
    return submit_rows(launch, make_loop({args.grad_x, args.grad_y, args.x}), row, kMathGrain);
  } else {
    return submit_rows(launch, make_loop({args.y, args.x}), row, kMathGrain);
  }
}

template <typename Args, uint32_t kOp>
constexpr bp_kernel activation_kernel(const char* name) {
  return make_kernel<Args, activation_launch<Args, kOp>>(
      kernel_row(name, kOp, kFloatDtypes, BP_KERNEL_IN_PLACE));
}

}  // namespace

extern constinit const bp_kernel kGelu = activation_kernel<bp_gelu_args, BP_OP_GELU>("gelu");
extern constinit const bp_kernel kGeluBackward =
    activation_kernel<bp_gelu_backward_args, BP_OP_GELU_BACKWARD>("gelu_backward");

}  // namespace bp::kernels
#endif  // HWY_ONCE
