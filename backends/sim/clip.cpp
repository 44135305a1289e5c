// An op of the device's own, which no header has: y = x, but no less than `low` and no more than
// `high`. The host learns it from the description, as it learns the ops of every vendor.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "backends/host_kernels/kernels.hpp"
#include "backends/sim/backend.hpp"
#include "backplane/operator.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/dtypes.hpp"
#include "backplane/shell/frame.hpp"

namespace bp::sim {
namespace {

struct ClipArgs {
  uint32_t struct_size, flags;
  const bp_tensor* x;
  const bp_tensor* y;
  double low, high;
};

constexpr bp_dtype kF32[] = {BP_F32};
constexpr const char* kName = "sim.clip";

constexpr bp_op_argument argument(const char* name, bp_argument_kind kind, size_t offset_bytes) {
  bp_op_argument argument{};
  argument.struct_size = sizeof(argument);
  argument.struct_type = BP_STRUCT_OP_ARGUMENT;
  argument.name = name;
  argument.kind = kind;
  argument.offset_bytes = static_cast<uint32_t>(offset_bytes);
  return argument;
}

constexpr bp_op_argument tensor(const char* name, bp_argument_kind kind, size_t offset_bytes,
                                const char* dtype_rule) {
  bp_op_argument its = argument(name, kind, offset_bytes);
  its.dtype_rule = dtype_rule;
  its.shape_rule = kind == BP_ARGUMENT_OUT ? "x.shape" : nullptr;
  its.may_alias = kind == BP_ARGUMENT_OUT ? 1 : 0;
  return its;
}

constexpr bp_op_argument kClipArguments[] = {
    tensor("x", BP_ARGUMENT_TENSOR, offsetof(ClipArgs, x), "set(f32, f64, f16)"),
    tensor("y", BP_ARGUMENT_OUT, offsetof(ClipArgs, y), "like(x)"),
    argument("low", BP_ARGUMENT_F64, offsetof(ClipArgs, low)),
    argument("high", BP_ARGUMENT_F64, offsetof(ClipArgs, high))};

constexpr bp_op_desc kOps[] = {
    {.struct_size = sizeof(bp_op_desc),
     .struct_type = BP_STRUCT_OP_DESC,
     .name = kName,
     .doc = "x, but no less than low and no more than high. NaN stays NaN.",
     .since = 1,
     .revision = 1,
     .frame_size_bytes = sizeof(ClipArgs),
     .arguments = kClipArguments,
     .argument_count = std::size(kClipArguments),
     .argument_stride_bytes = sizeof(bp_op_argument),
     .decomposition = "y = minimum(maximum(x, low), high)",
     .condition = "x.dtype != f16",
     .backward = "none: the op is for inference"}};

bp_status submit_clip(const ClipArgs& a, kernels::Launch& launch) {
  const int64_t count = element_count(*a.x);
  if (count == 0) return launch.submit([] {});
  const auto low = static_cast<float>(a.low), high = static_cast<float>(a.high);
  return launch.submit([=, x = kernels::data<const float>(*a.x), y = kernels::data<float>(*a.y)] {
    for (int64_t i = 0; i < count; ++i) {
      y[i] = std::isnan(x[i]) ? x[i] : std::min(std::max(x[i], low), high);
    }
  });
}

// The tensors of the frame are found by the description.
bp_status launch_clip(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const Instance& i = instance(self->state);
  const auto make = [&] {
    Stream& stream = stream_of(launch->stream, "launch");
    return kernels::Launch(i, *self, *launch, stream,
                           uses_of_frame(described_op(*i.host, kName), args, stream));
  };
  return bp::with_launch(i, *self, launch, args, make, [&](kernels::Launch& context) {
    return launch_typed<ClipArgs>(*self, args, context,
                                  [&](const ClipArgs& a) { return submit_clip(a, context); });
  });
}

constexpr bp_kernel clip_row() {
  bp_kernel row = kernel_row("clip", 0, kF32, BP_KERNEL_IN_PLACE | BP_KERNEL_CAPTURABLE);
  row.struct_size = sizeof(bp_kernel);
  row.struct_type = BP_STRUCT_KERNEL;
  row.op_name = kName;
  row.spec_revision = 1;  // That of the description.
  row.args_size_bytes = sizeof(ClipArgs);
  row.layouts = BP_LAYOUT_CONTIGUOUS;
  row.launch = launch_clip;
  return row;
}

}  // namespace

constinit const std::span<const bp_op_desc> kOwnOps = kOps;
constinit const bp_kernel kClip = clip_row();

}  // namespace bp::sim
