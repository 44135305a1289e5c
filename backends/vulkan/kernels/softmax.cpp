// softmax and log_softmax along any axis, and their gradients (softmax.comp).
#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/rows.hpp"

namespace bp::vulkan {
namespace {

enum SoftmaxOp : uint32_t { kForward = 0, kLogForward = 1, kBackward = 2, kLogBackward = 3 };

struct SoftmaxRecord {
  uint64_t addresses[3];
  uint64_t row_count, row_size;
  int64_t steps[3];
  uint32_t extents[BP_MAX_RANK];
  int64_t strides[3][BP_MAX_RANK];
};

// An invocation walks its part of a row three times.
constexpr int64_t kMostTrips = 20000;

// Whether every row of every tensor is pairs of neighbours at multiples of eight bytes.
bool has_pairs(const SoftmaxRecord& record, const Walk& rows, size_t tensor_count) {
  if (record.row_size % 2 != 0) return false;
  for (size_t k = 0; k < tensor_count; ++k) {
    if (record.steps[k] != sizeof(float) || record.addresses[k] % 16 != 0) return false;
    for (size_t i = 0; i < rows.rank; ++i) {
      if (rows.strides[k][i] % 8 != 0) return false;
    }
  }
  return true;
}

bp_status submit_softmax(Launch& launch, SoftmaxOp op, int32_t axis,
                         std::initializer_list<const bp_tensor*> tensors) {
  const bp_tensor& to = **tensors.begin();
  const auto along = static_cast<uint32_t>(axis);
  const int64_t item = dtype_size_bytes(to.dtype);
  const Walk rows = make_row_walk(tensors, along, 1);
  // A scalar is a row of one element.
  const int64_t row_size = to.ndim == 0 ? 1 : to.shape[along];
  if (rows.count == 0 || row_size == 0) return BP_OK;
  const uint32_t lanes = lanes_of_row(launch, rows.count, row_size, kMostTrips);
  if (lanes == 0) return launch.refuse(BP_UNSUPPORTED, kRowTooLong);

  SoftmaxRecord record{};
  record.row_count = static_cast<uint64_t>(rows.count);
  record.row_size = static_cast<uint64_t>(row_size);
  copy_extents(rows, record.extents);
  Ranges reads(launch), writes(launch, {&to});
  size_t k = 0;
  for (const bp_tensor* t : tensors) {
    record.addresses[k] = launch.device_address(*t);
    record.steps[k] = to.ndim == 0 ? 0 : t->strides[along] * item;
    std::copy(rows.strides[k].begin(), rows.strides[k].end(), record.strides[k]);
    if (k++ != 0) reads.add(t);
  }
  const bool pairs = to.dtype == BP_F32 && has_pairs(record, rows, tensors.size());
  const uint32_t size = row_group_size(launch, lanes);
  const std::array<uint32_t, 6> constants = {
      size, lanes, op, to.dtype, std::max(rows.rank, 1u), pairs ? 1u : 0u};
  return submit(launch, kSoftmaxModule, constants, record,
                ceil_divide(record.row_count, size / lanes), {reads, writes});
}

template <typename Args, SoftmaxOp kOp>
bp_status forward_launch(const Args& args, Launch& launch) {
  return submit_softmax(launch, kOp, args.axis, {args.y, args.x});
}

template <typename Args, SoftmaxOp kOp>
bp_status backward_launch(const Args& args, Launch& launch) {
  return submit_softmax(launch, kOp, args.axis, {args.grad_x, args.grad_y, args.y});
}

bp_reason row_reason(const bp_tensor& x, int32_t axis) {
  if (x.ndim == 0) return nullptr;
  return x.shape[axis] <= kMostLanes * kMostTrips ? nullptr : kRowTooLong;
}

template <typename Args>
bp_reason forward_supports(const Args& args) {
  return row_reason(*args.x, args.axis);
}

template <typename Args>
bp_reason backward_supports(const Args& args) {
  return row_reason(*args.y, args.axis);
}

constexpr bp_kernel softmax_row(const char* name, uint32_t op) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_IN_PLACE,
      .dtype_rows = kF32Dtypes,
      .dtype_row_count = std::size(kF32Dtypes),
      .dtype_count = 1,
  };
}

}  // namespace

constinit const bp_kernel kSoftmax =
    make_kernel<bp_softmax_args, forward_launch<bp_softmax_args, kForward>,
                forward_supports<bp_softmax_args>>(softmax_row("softmax", BP_OP_SOFTMAX));
constinit const bp_kernel kLogSoftmax =
    make_kernel<bp_log_softmax_args, forward_launch<bp_log_softmax_args, kLogForward>,
                forward_supports<bp_log_softmax_args>>(
        softmax_row("log_softmax", BP_OP_LOG_SOFTMAX));
constinit const bp_kernel kSoftmaxBackward =
    make_kernel<bp_softmax_backward_args, backward_launch<bp_softmax_backward_args, kBackward>,
                backward_supports<bp_softmax_backward_args>>(
        softmax_row("softmax_backward", BP_OP_SOFTMAX_BACKWARD));
constinit const bp_kernel kLogSoftmaxBackward =
    make_kernel<bp_log_softmax_backward_args,
                backward_launch<bp_log_softmax_backward_args, kLogBackward>,
                backward_supports<bp_log_softmax_backward_args>>(
        softmax_row("log_softmax_backward", BP_OP_LOG_SOFTMAX_BACKWARD));

}  // namespace bp::vulkan
