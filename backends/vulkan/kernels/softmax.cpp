// softmax and log_softmax along any axis, and their gradients, in f32 or in f64 (softmax.comp).
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

// The way in which the shader takes neighbours.
enum class Neighbours { kNone, kAlong, kAcross };

// Returns whether all strides of the rows are whole vectors, from axis `first` on.
bool has_vector_strides(const Walk& rows, size_t tensor_count, uint32_t first, int64_t bytes) {
  for (size_t k = 0; k < tensor_count; ++k) {
    for (uint32_t i = first; i < rows.rank; ++i) {
      if (rows.strides[k][i] % bytes != 0) return false;
    }
  }
  return true;
}

// Returns which neighbours can be taken at once from bound tensors.
Neighbours neighbours_of(const SoftmaxRecord& record, const Walk& rows, size_t tensor_count,
                         int64_t item) {
  const int64_t bytes = item * kNeighbours;
  const auto all = [&](const auto& is_right) {
    for (size_t k = 0; k < tensor_count; ++k) {
      if (!is_right(k)) return false;
    }
    return true;
  };
  if (record.row_size % kNeighbours == 0 && has_vector_strides(rows, tensor_count, 0, bytes) &&
      all([&](size_t k) { return record.steps[k] == item; })) {
    return Neighbours::kAlong;
  }
  if (rows.rank > 0 && rows.extents[0] % kNeighbours == 0 && record.row_size <= kMostTrips &&
      has_vector_strides(rows, tensor_count, 1, bytes) &&
      all([&](size_t k) { return rows.strides[k][0] == item && record.steps[k] % bytes == 0; })) {
    return Neighbours::kAcross;
  }
  return Neighbours::kNone;
}

// Returns the walk in which several rows are joined into one.
Walk join_rows(Walk rows) {
  rows.extents[0] /= kNeighbours;
  rows.count /= kNeighbours;
  for (auto& strides : rows.strides) strides[0] *= kNeighbours;
  return rows;
}

bp_status submit_softmax(Launch& launch, SoftmaxOp op, int32_t axis,
                         std::initializer_list<const bp_tensor*> tensors) {
  const bp_tensor& to = **tensors.begin();
  const auto along = static_cast<uint32_t>(axis);
  const int64_t item = dtype_size_bytes(to.dtype);
  Walk rows = make_row_walk(tensors, along, 1);
  const int64_t row_size = axis_extent(to, along);
  if (rows.count == 0 || row_size == 0) return BP_OK;
  SoftmaxRecord record{};
  record.row_size = static_cast<uint64_t>(row_size);
  Ranges reads(launch), writes(launch, {&to});
  BoundTensors bound{};
  size_t k = 0;
  for (const bp_tensor* t : tensors) {
    record.addresses[k] = launch.device_address(*t);
    record.steps[k] = axis_stride(*t, along) * item;
    bound[k] = t;
    if (k++ != 0) reads.add(t);
  }
  const bool is_f64 = to.dtype == BP_F64;
  const Neighbours neighbours = !is_f64 && can_bind_all(launch, bound)
                                    ? neighbours_of(record, rows, tensors.size(), item)
                                    : Neighbours::kNone;
  if (neighbours == Neighbours::kAcross) rows = join_rows(rows);
  const int64_t steps = neighbours == Neighbours::kAlong ? row_size / kNeighbours : row_size;
  const uint32_t lanes =
      neighbours == Neighbours::kAcross ? 1 : lanes_of_row(launch, rows.count, steps, kMostTrips);
  if (lanes == 0) return launch.refuse(BP_UNSUPPORTED, kRowTooLong);
  record.row_count = static_cast<uint64_t>(rows.count);
  copy_extents(rows, record.extents);
  for (k = 0; k < tensors.size(); ++k) {
    std::copy(rows.strides[k].begin(), rows.strides[k].end(), record.strides[k]);
  }
  const uint32_t size = row_group_size(launch, lanes);
  const std::array<uint32_t, 6> constants = {size,
                                             lanes,
                                             op,
                                             one_of(kFloatDtypes, to.dtype),
                                             std::max(rows.rank, 1u),
                                             neighbours == Neighbours::kAcross ? 1u : 0u};
  const uint64_t groups = ceil_divide(record.row_count, size / lanes);
  if (neighbours == Neighbours::kNone) {
    const Module& module = is_f64 ? kSoftmaxF64Module : kSoftmaxF32Module;
    return submit(launch, module, constants, record, groups, {reads, writes});
  }
  return submit(launch, kSoftmaxBoundModule, constants, record, groups,
                {reads, writes, bound_ranges(launch, bound)});
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
  const int64_t row_size = axis_extent(x, static_cast<size_t>(axis));
  return row_size <= kMostLanes * kMostTrips ? nullptr : kRowTooLong;
}

template <typename Args>
bp_reason forward_supports(const Args& args) {
  return row_reason(*args.x, args.axis);
}

template <typename Args>
bp_reason backward_supports(const Args& args) {
  return row_reason(*args.y, args.axis);
}

constexpr auto kFlags = BP_KERNEL_IN_PLACE;

}  // namespace

constinit const bp_kernel kSoftmax =
    make_kernel<bp_softmax_args, forward_launch<bp_softmax_args, kForward>,
                forward_supports<bp_softmax_args>>(
        kernel_row("softmax", BP_OP_SOFTMAX, kFloatDtypes, kFlags));
constinit const bp_kernel kLogSoftmax =
    make_kernel<bp_log_softmax_args, forward_launch<bp_log_softmax_args, kLogForward>,
                forward_supports<bp_log_softmax_args>>(
        kernel_row("log_softmax", BP_OP_LOG_SOFTMAX, kFloatDtypes, kFlags));
constinit const bp_kernel kSoftmaxBackward =
    make_kernel<bp_softmax_backward_args, backward_launch<bp_softmax_backward_args, kBackward>,
                backward_supports<bp_softmax_backward_args>>(
        kernel_row("softmax_backward", BP_OP_SOFTMAX_BACKWARD, kFloatDtypes, kFlags));
constinit const bp_kernel kLogSoftmaxBackward =
    make_kernel<bp_log_softmax_backward_args,
                backward_launch<bp_log_softmax_backward_args, kLogBackward>,
                backward_supports<bp_log_softmax_backward_args>>(
        kernel_row("log_softmax_backward", BP_OP_LOG_SOFTMAX_BACKWARD, kFloatDtypes, kFlags));

}  // namespace bp::vulkan
