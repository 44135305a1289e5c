// interpolate and its gradient, over 1 to 3 spatial axes (interpolate.comp).
#include "backends/vulkan/kernels/grid.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backplane/shell/sampling.hpp"

namespace bp::vulkan {
namespace {

struct InterpolateRecord {
  uint64_t x, y;
  uint64_t count;
  uint32_t extents_x[5], extents_y[5];
  int64_t strides_x[5], strides_y[5];
  int64_t step[3], offset[3], unit[3];
};

// In the gradient x is grad_x, and y is grad_y.
struct InterpolateCall {
  const char* op;
  bool is_backward;
  const bp_tensor &x, &y;
};

template <typename Args>
bp_status submit_interpolate(Launch& launch, const Args& args, const InterpolateCall& call) {
  const bp_tensor& result = call.is_backward ? call.x : call.y;
  const bp_tensor& source = call.is_backward ? call.y : call.x;
  const int64_t count = element_count(result);
  if (count == 0) return BP_OK;
  if (count > int64_t{1} << 31) {
    return launch.refuse(BP_UNSUPPORTED,
                         std::string(call.op) + ": the result has more than 2^31 elements");
  }
  InterpolateRecord record{};
  record.count = static_cast<uint64_t>(count);
  record.x = address_of(launch, &call.x);
  record.y = address_of(launch, &call.y);
  put_axes(call.x, record.extents_x, record.strides_x);
  put_axes(call.y, record.extents_y, record.strides_y);
  for (uint32_t i = 0; i < 3; ++i) {
    const Positions axis = positions_of(args, record.extents_x[2 + i], record.extents_y[2 + i]);
    record.step[i] = axis.step;
    record.offset[i] = axis.offset;
    record.unit[i] = axis.unit;
  }
  const std::array<uint32_t, 4> constants = {local_size(launch), call.is_backward ? 1u : 0u,
                                             one_of(kF32Dtypes, result.dtype),
                                             args.mode == BP_INTERPOLATE_MODE_LINEAR ? 1u : 0u};
  const Ranges reads(launch, {&source}), writes(launch, {&result});
  return submit(launch, kInterpolateModule, constants, record,
                ceil_divide(record.count, local_size(launch)), {reads, writes});
}

bp_reason interpolate_reason(const bp_interpolate_args& args) {
  return sampling_reason(*args.x, *args.y);
}

bp_status interpolate_launch(const bp_interpolate_args& args, Launch& launch) {
  return submit_interpolate(launch, args, {"interpolate", false, *args.x, *args.y});
}

bp_reason interpolate_backward_reason(const bp_interpolate_backward_args& args) {
  return sampling_reason(*args.grad_x, *args.grad_y);
}

bp_status interpolate_backward_launch(const bp_interpolate_backward_args& args, Launch& launch) {
  return submit_interpolate(launch, args,
                            {"interpolate_backward", true, *args.grad_x, *args.grad_y});
}

}  // namespace

constinit const bp_kernel kInterpolate =
    make_kernel<bp_interpolate_args, interpolate_launch, interpolate_reason>(
        kernel_row("interpolate", BP_OP_INTERPOLATE, kF32Dtypes));
constinit const bp_kernel kInterpolateBackward =
    make_kernel<bp_interpolate_backward_args, interpolate_backward_launch,
                interpolate_backward_reason>(
        kernel_row("interpolate_backward", BP_OP_INTERPOLATE_BACKWARD, kF32Dtypes));

}  // namespace bp::vulkan
