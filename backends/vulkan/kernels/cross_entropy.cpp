// cross_entropy and its gradient, and nll_loss (cross_entropy.comp).
#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/indices.hpp"
#include "backends/vulkan/kernels/rows.hpp"

namespace bp::vulkan {
namespace {

enum LossOp : uint32_t { kRows = 0, kTotal = 1, kCount = 2, kGradient = 3, kPicked = 4 };

struct LossRecord {
  uint64_t x, target, lse, losses, y, grad_y, count, failure;
  uint64_t row_count, row_size;
  int64_t x_row, x_col, target_row, lse_row, loss_row, grad_y_row, y_row, y_col;
  int64_t ignore_index;
  float smoothing;
};

// An invocation walks its part of a row, or of all rows, twice.
constexpr int64_t kMostTrips = 30000;

struct LossCall {
  LossOp op;
  bp_dtype dtype, target_dtype, loss_dtype;
  bool is_mean;
  uint32_t bounds;
};

bp_status submit_loss(Launch& launch, const LossCall& call, const LossRecord& record,
                      const Ranges& reads, const Ranges& writes) {
  const bool is_single = call.op == kTotal || call.op == kCount;
  const uint64_t rows = is_single ? 1 : record.row_count;
  const bool is_one = call.op == kPicked;  // It takes one element of a row.
  const auto size =
      static_cast<int64_t>(is_single ? record.row_count : (is_one ? 1 : record.row_size));
  const uint32_t lanes = lanes_of_row(launch, static_cast<int64_t>(rows), size, kMostTrips);
  if (lanes == 0) return launch.refuse(BP_UNSUPPORTED, kRowTooLong);
  const uint32_t group = row_group_size(launch, lanes);
  const std::array<uint32_t, 8> constants = {group,
                                             lanes,
                                             call.op,
                                             one_of(kF32Dtypes, call.dtype),
                                             one_of(kIndexDtypes, call.target_dtype),
                                             call.is_mean ? 1u : 0u,
                                             one_of(kF32Dtypes, call.loss_dtype),
                                             clamps(call.bounds)};
  return submit(launch, kCrossEntropyModule, constants, record, ceil_divide(rows, group / lanes),
                {reads, writes});
}

template <typename Args>
LossRecord record_of(Launch& launch, const Args& args, const char* op) {
  const bp_tensor& x = *args.x;
  LossRecord record{};
  record.x = address_of(launch, &x);
  record.target = address_of(launch, args.target);
  record.failure =
      launch.failure_address([text = wrong_index(op, "target", *args.target, record.target,
                                                 x.shape[1])](int64_t target, uint64_t place) {
        return text(target, place) + " and not ignore_index";
      });
  record.row_count = static_cast<uint64_t>(x.shape[0]);
  record.row_size = static_cast<uint64_t>(x.shape[1]);
  record.x_row = x.strides[0] * dtype_size_bytes(x.dtype);
  record.x_col = x.strides[1] * dtype_size_bytes(x.dtype);
  record.target_row = args.target->strides[0] * dtype_size_bytes(args.target->dtype);
  record.ignore_index = args.ignore_index;
  if constexpr (requires { args.lse; }) {
    record.lse = address_of(launch, args.lse);
    if (args.lse != nullptr) record.lse_row = args.lse->strides[0] * int64_t{sizeof(float)};
    record.smoothing = static_cast<float>(args.label_smoothing);
  }
  return record;
}

// All losses share the values of their reductions.
template <typename Args, LossOp kOp>
bp_status forward_launch(const Args& args, Launch& launch) {
  const bp_tensor &x = *args.x, &y = *args.y;
  LossRecord record = record_of(launch, args, kOp == kPicked ? "nll_loss" : "cross_entropy");
  const bool is_none = args.reduction == BP_CROSS_ENTROPY_REDUCTION_NONE;
  record.y = address_of(launch, &y);
  record.losses = is_none ? record.y : launch.workspace_address();
  record.loss_row = is_none ? y.strides[0] * dtype_size_bytes(y.dtype) : int64_t{sizeof(float)};
  const LossCall rows{.op = kOp,
                      .dtype = x.dtype,
                      .target_dtype = args.target->dtype,
                      .loss_dtype = is_none ? y.dtype : bp_dtype{BP_F32},
                      .is_mean = args.reduction == BP_CROSS_ENTROPY_REDUCTION_MEAN,
                      .bounds = args.bounds};
  Ranges losses(launch);
  if (is_none) {
    losses.add(&y);
  } else {
    losses.add(launch.workspace());
  }
  Ranges written = losses;
  if constexpr (requires { args.lse; }) written.add(args.lse);
  if (record.row_count != 0) {
    const bp_status status =
        submit_loss(launch, rows, record, Ranges(launch, {&x, args.target}), written);
    if (status != BP_OK || is_none) return status;
  }
  if (is_none) return BP_OK;
  LossCall total = rows;
  total.op = kTotal;
  return submit_loss(launch, total, record, losses.add(args.target), Ranges(launch, {&y}));
}

bp_status backward_launch(const bp_cross_entropy_backward_args& args, Launch& launch) {
  const bp_tensor &x = *args.x, &grad_x = *args.grad_x;
  if (element_count(x) == 0) return BP_OK;
  LossRecord record = record_of(launch, args, "cross_entropy_backward");
  record.y = launch.device_address(grad_x);
  record.y_row = grad_x.strides[0] * dtype_size_bytes(grad_x.dtype);
  record.y_col = grad_x.strides[1] * dtype_size_bytes(grad_x.dtype);
  record.grad_y = launch.device_address(*args.grad_y);
  if (args.reduction == BP_CROSS_ENTROPY_BACKWARD_REDUCTION_NONE) {
    record.grad_y_row = args.grad_y->strides[0] * dtype_size_bytes(x.dtype);
  }
  record.count = launch.workspace_address();
  LossCall call{.op = kCount,
                .dtype = x.dtype,
                .target_dtype = args.target->dtype,
                .loss_dtype = BP_F32,
                .is_mean = args.reduction == BP_CROSS_ENTROPY_BACKWARD_REDUCTION_MEAN,
                .bounds = args.bounds};
  Ranges scratch(launch);
  scratch.add(launch.workspace());
  if (call.is_mean) {
    const bp_status status =
        submit_loss(launch, call, record, Ranges(launch, {args.target}), scratch);
    if (status != BP_OK) return status;
  }
  call.op = kGradient;
  return submit_loss(
      launch, call, record,
      Ranges(launch, {&x, args.target, args.lse, args.grad_y}).add(launch.workspace()),
      Ranges(launch, {&grad_x}));
}

template <typename Args>
bp_reason loss_supports(const Args& args) {
  if (args.reduction < 1 || args.reduction > 3) return "the reduction is not known";
  if (args.x->shape[0] > kMostLanes * kMostTrips) return "there are more than 7680000 rows";
  return args.x->shape[1] > kMostLanes * kMostTrips ? kRowTooLong : nullptr;
}

template <typename Args>
uint64_t forward_workspace(const Args& args, const Env&) {
  if (args.reduction == BP_CROSS_ENTROPY_REDUCTION_NONE) return 0;
  return static_cast<uint64_t>(args.x->shape[0]) * sizeof(float);
}

uint64_t backward_workspace(const bp_cross_entropy_backward_args&, const Env&) {
  return sizeof(float);
}

// The target also follows x in the frame of the gradient.
constexpr auto kDtypes = with_indices(kF32Dtypes);

}  // namespace

constinit const bp_kernel kCrossEntropy =
    make_kernel<bp_cross_entropy_args, forward_launch<bp_cross_entropy_args, kRows>,
                loss_supports<bp_cross_entropy_args>, forward_workspace<bp_cross_entropy_args>>(
        kernel_row("cross_entropy", BP_OP_CROSS_ENTROPY, {kDtypes, 2}));
constinit const bp_kernel kNllLoss =
    make_kernel<bp_nll_loss_args, forward_launch<bp_nll_loss_args, kPicked>,
                loss_supports<bp_nll_loss_args>, forward_workspace<bp_nll_loss_args>>(
        kernel_row("nll_loss", BP_OP_NLL_LOSS, {kDtypes, 2}));
constinit const bp_kernel kCrossEntropyBackward =
    make_kernel<bp_cross_entropy_backward_args, backward_launch,
                loss_supports<bp_cross_entropy_backward_args>, backward_workspace>(kernel_row(
        "cross_entropy_backward", BP_OP_CROSS_ENTROPY_BACKWARD, {kDtypes, 2}, BP_KERNEL_IN_PLACE));

}  // namespace bp::vulkan
