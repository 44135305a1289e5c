// The losses between the elements of two tensors, in f32 or in f64 (element_loss.comp).
#include <algorithm>
#include <array>
#include <cstring>

#include "backends/vulkan/kernels/axes.hpp"
#include "backends/vulkan/kernels/rows.hpp"

namespace bp::vulkan {
namespace {

enum LossPass : uint32_t { kEach = 0, kParts = 1, kTotal = 2 };

struct LossRecord {
  uint64_t y, x, target, pos_weight, weight;
  uint64_t parts;
  uint64_t count, part_count, part_size;
  uint64_t width;
  uint32_t extents[BP_MAX_RANK];
  int64_t y_strides[BP_MAX_RANK], x_strides[BP_MAX_RANK], target_strides[BP_MAX_RANK],
      pos_weight_strides[BP_MAX_RANK], weight_strides[BP_MAX_RANK];
};

// The elements of a part, and the most steps of an invocation.
constexpr int64_t kPartSize = 16384, kMostTrips = 30000;

struct LossCall {
  uint32_t op;
  const bp_tensor &x, &target, &y;
  uint32_t reduction;
  double width = 0;  // That of the parabola.
  const bp_tensor* pos_weight = nullptr;
  const bp_tensor* weight = nullptr;

  // All losses share the values of their reductions.
  bool is_none() const { return reduction == BP_MSE_LOSS_REDUCTION_NONE; }
  bool is_mean() const { return reduction == BP_MSE_LOSS_REDUCTION_MEAN; }
  bool is_f64() const { return x.dtype == BP_F64; }
  int64_t part_count() const { return (element_count(x) + kPartSize - 1) / kPartSize; }
};

template <uint32_t kOp, typename Args>
LossCall call_of(const Args& args) {
  LossCall call{kOp, *args.x, *args.target, *args.y, args.reduction};
  if constexpr (requires { args.beta; }) call.width = args.beta;
  if constexpr (requires { args.delta; }) call.width = args.delta;
  if constexpr (requires { args.pos_weight; }) {
    call.pos_weight = args.pos_weight;
    call.weight = args.weight;
  }
  return call;
}

// Returns the bits of the width in the type in which the shader computes.
uint64_t width_bits(const LossCall& call) {
  uint64_t bits = 0;
  const auto narrow_width = static_cast<float>(call.width);
  if (call.is_f64()) {
    std::memcpy(&bits, &call.width, sizeof(call.width));
  } else {
    std::memcpy(&bits, &narrow_width, sizeof(narrow_width));
  }
  return bits;
}

AxisOperand axes_of(const bp_tensor* tensor, int64_t* to) {
  if (tensor == nullptr) return {nullptr, 0, to};
  return {tensor->strides, dtype_size_bytes(tensor->dtype), to};
}

// Fills the record, and returns the number of its axes.
uint32_t fill_record(const Launch& launch, const LossCall& call, LossRecord& record) {
  record.y = launch.device_address(call.y);
  record.x = address_of(launch, &call.x);
  record.target = address_of(launch, &call.target);
  record.pos_weight = address_of(launch, call.pos_weight);
  record.weight = address_of(launch, call.weight);
  record.count = static_cast<uint64_t>(element_count(call.x));
  record.part_count = static_cast<uint64_t>(call.part_count());
  record.part_size = kPartSize;
  record.width = width_bits(call);
  return put_axes({call.x.shape, call.x.ndim},
                  {axes_of(&call.x, record.x_strides),
                   axes_of(call.is_none() ? &call.y : nullptr, record.y_strides),
                   axes_of(&call.target, record.target_strides),
                   axes_of(call.pos_weight, record.pos_weight_strides),
                   axes_of(call.weight, record.weight_strides)},
                  record.extents, AxisOrder::kByStride);
}

// What a pass has besides the record of the call.
struct PassOf {
  LossPass pass;
  uint32_t rank;
  int64_t rows, row_size;  // What kLanes invocations share; one element in kEach.
};

bp_status submit_pass(Launch& launch, const LossCall& call, const PassOf& p,
                      const LossRecord& record, const Touched& touched) {
  const uint32_t lanes = lanes_of_row(launch, p.rows, p.row_size, kMostTrips);
  if (lanes == 0) return launch.refuse(BP_UNSUPPORTED, kRowTooLong);
  const uint32_t size = p.pass == kEach ? local_size(launch) : row_group_size(launch, lanes);
  const std::array<uint32_t, 7> constants = {size,
                                             lanes,
                                             call.op,
                                             one_of(kFloatDtypes, call.x.dtype),
                                             p.rank,
                                             p.pass,
                                             call.is_mean() ? 1u : 0u};
  const Module& module = call.is_f64() ? kElementLossF64Module : kElementLossF32Module;
  return submit(launch, module, constants, record,
                ceil_divide(static_cast<uint64_t>(p.rows), size / lanes), touched);
}

bp_status submit_loss(Launch& launch, const LossCall& call) {
  const int64_t count = element_count(call.x);
  if (call.is_none() && count == 0) return BP_OK;
  LossRecord record{};
  const uint32_t rank = fill_record(launch, call, record);
  const Ranges inputs(launch, {&call.x, &call.target, call.pos_weight, call.weight});
  const Ranges results(launch, {&call.y});
  if (call.is_none()) {
    return submit_pass(launch, call, {kEach, rank, count, 1}, record, {inputs, results});
  }
  Ranges parts(launch);
  if (count != 0) {
    record.parts = launch.workspace_address();
    parts.add(launch.workspace());
    const bp_status status = submit_pass(launch, call, {kParts, rank, call.part_count(), kPartSize},
                                         record, {inputs, parts});
    if (status != BP_OK) return status;
  }
  return submit_pass(launch, call, {kTotal, rank, 1, call.part_count()}, record, {parts, results});
}

template <typename Args, uint32_t kOp>
bp_status loss_launch(const Args& args, Launch& launch) {
  return submit_loss(launch, call_of<kOp>(args));
}

template <typename Args>
bp_reason loss_supports(const Args& args) {
  if (args.reduction < 1 || args.reduction > 3) return "the reduction is not known";
  return element_count(*args.x) > int64_t{1} << 31 ? "x has more than 2^31 elements" : nullptr;
}

template <typename Args, uint32_t kOp>
uint64_t loss_workspace(const Args& args, const Env&) {
  const LossCall call = call_of<kOp>(args);
  if (call.is_none()) return 0;
  return static_cast<uint64_t>(call.part_count()) * (call.is_f64() ? 8 : 4);
}

template <typename Args, uint32_t kOp>
constexpr bp_kernel loss_kernel(const char* name) {
  return make_kernel<Args, loss_launch<Args, kOp>, loss_supports<Args>, loss_workspace<Args, kOp>>(
      kernel_row(name, kOp, kFloatDtypes));
}

}  // namespace

constinit const bp_kernel kMseLoss = loss_kernel<bp_mse_loss_args, BP_OP_MSE_LOSS>("mse_loss");
constinit const bp_kernel kL1Loss = loss_kernel<bp_l1_loss_args, BP_OP_L1_LOSS>("l1_loss");
constinit const bp_kernel kSmoothL1Loss =
    loss_kernel<bp_smooth_l1_loss_args, BP_OP_SMOOTH_L1_LOSS>("smooth_l1_loss");
constinit const bp_kernel kHuberLoss =
    loss_kernel<bp_huber_loss_args, BP_OP_HUBER_LOSS>("huber_loss");
constinit const bp_kernel kBceWithLogitsLoss =
    loss_kernel<bp_bce_with_logits_loss_args, BP_OP_BCE_WITH_LOGITS_LOSS>("bce_with_logits_loss");
constinit const bp_kernel kKlDivLoss =
    loss_kernel<bp_kl_div_loss_args, BP_OP_KL_DIV_LOSS>("kl_div_loss");

}  // namespace bp::vulkan
