// gelu and its gradient, for tensors of every layout.
#include "backends/cuda/kernels/activation.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"

namespace bp::cuda {
namespace {

// Makes an op on elements from a function on the computing type.
template <class Function>
struct OnElements {
  template <typename T, typename... More>
  __host__ __device__ T operator()(T x, More... more) const {
    return narrow<T>(Function()(widen(x), widen(more)...));
  }
};

template <class Function>
bp_status forward_launch(const bp_gelu_args& args, Launch& launch) {
  using Op = OnElements<Function>;
  return with_float(args.x->dtype, [&]<typename T>(T) {
    return submit_map<Op, T, T>(launch, Op(), loop_over(*args.y, args.x));
  });
}

template <class Function>
bp_status backward_launch(const bp_gelu_backward_args& args, Launch& launch) {
  using Op = OnElements<Function>;
  return with_float(args.x->dtype, [&]<typename T>(T) {
    return submit_map<Op, T, T, T>(launch, Op(), loop_over(*args.grad_x, args.grad_y, args.x));
  });
}

bp_reason gelu_supports(const bp_gelu_args& args) {
  const bool is_known = args.approximation == BP_GELU_APPROXIMATION_NONE ||
                        args.approximation == BP_GELU_APPROXIMATION_TANH;
  return is_known ? nullptr : "the approximation is not known";
}

bp_reason gelu_backward_supports(const bp_gelu_backward_args& args) {
  const bool is_known = args.approximation == BP_GELU_BACKWARD_APPROXIMATION_NONE ||
                        args.approximation == BP_GELU_BACKWARD_APPROXIMATION_TANH;
  return is_known ? nullptr : "the approximation is not known";
}

bp_status gelu_launch(const bp_gelu_args& args, Launch& launch) {
  if (const bp_reason reason = gelu_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("gelu: ") + reason);
  }
  return args.approximation == BP_GELU_APPROXIMATION_TANH ? forward_launch<GeluTanh>(args, launch)
                                                          : forward_launch<Gelu>(args, launch);
}

bp_status gelu_backward_launch(const bp_gelu_backward_args& args, Launch& launch) {
  if (const bp_reason reason = gelu_backward_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("gelu_backward: ") + reason);
  }
  return args.approximation == BP_GELU_BACKWARD_APPROXIMATION_TANH
             ? backward_launch<GeluTanhBackward>(args, launch)
             : backward_launch<GeluBackward>(args, launch);
}

constexpr auto kFlags = BP_KERNEL_IN_PLACE;

}  // namespace

constinit const bp_kernel kGelu = make_kernel<bp_gelu_args, gelu_launch, gelu_supports>(
    kernel_row("gelu", BP_OP_GELU, kFloatDtypes, kFlags));
constinit const bp_kernel kGeluBackward =
    make_kernel<bp_gelu_backward_args, gelu_backward_launch, gelu_backward_supports>(
        kernel_row("gelu_backward", BP_OP_GELU_BACKWARD, kFloatDtypes, kFlags));

}  // namespace bp::cuda
