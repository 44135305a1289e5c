// group_norm, instance_norm, batch_norm_inference and batch_norm_training (norm.comp). The rows are
// the groups of each sample, the channels over all samples, or the channels of each sample.
#include <array>

#include "backends/vulkan/kernels/axes.hpp"
#include "backends/vulkan/kernels/norm.hpp"

namespace bp::vulkan {
namespace {

// The tensors of a call; NULL if absent.
struct ChannelTensors {
  const bp_tensor *y, *x, *gamma, *beta, *mean, *rstd, *variance;
};

// The strides of the tensors along an axis, in elements.
struct ChannelStrides {
  int64_t y = 0, x = 0, gamma = 0, beta = 0, mean = 0, rstd = 0, variance = 0;
};

// Some axes of a walk over all tensors.
struct ChannelAxes {
  void add(int64_t extent, const ChannelStrides& strides) {
    const int64_t all[] = {strides.y,    strides.x,    strides.gamma,   strides.beta,
                           strides.mean, strides.rstd, strides.variance};
    for (size_t k = 0; k < std::size(all); ++k) lists[k][rank] = all[k];
    extents[rank++] = extent;
    count *= extent;
  }
  // Adds the places of a channel.
  void add_places(const ChannelTensors& t) {
    for (uint32_t i = 2; i < t.x->ndim; ++i) {
      add(t.x->shape[i], {.y = t.y->strides[i], .x = t.x->strides[i]});
    }
  }
  std::span<const int64_t> shape() const { return {extents.data(), rank}; }
  AxisOperand operand(size_t k, const bp_tensor* tensor, int64_t* to) const {
    return {lists[k].data(), tensor == nullptr ? 0 : dtype_size_bytes(tensor->dtype), to};
  }

  std::array<int64_t, BP_MAX_RANK> extents{};
  std::array<std::array<int64_t, BP_MAX_RANK>, 7> lists{};
  size_t rank = 0;
  int64_t count = 1;
};

int64_t stride_of(const bp_tensor* tensor, uint32_t axis) {
  return tensor == nullptr ? 0 : tensor->strides[axis];
}

// Returns the strides of the tensors with samples and channels along axis 0 or 1 of x.
ChannelStrides strides_of(const ChannelTensors& t, uint32_t axis) {
  return {.y = t.y->strides[axis], .x = t.x->strides[axis]};
}

// A call, as rows that are normalized by themselves.
struct ChannelCall {
  NormOp op;
  double eps;
  ChannelTensors tensors;
  ChannelAxes rows, inner;
};

// Returns the call of group_norm or instance_norm.
template <typename Args>
ChannelCall call_with(const Args& a, int64_t group_count) {
  ChannelCall call{
      kNormForward, a.eps, {a.y, a.x, a.gamma, a.beta, a.mean, a.rstd, nullptr}, {}, {}};
  const ChannelTensors& t = call.tensors;
  ChannelStrides samples = strides_of(t, 0), channels = strides_of(t, 1);
  samples.mean = stride_of(a.mean, 0);
  samples.rstd = stride_of(a.rstd, 0);
  channels.gamma = stride_of(a.gamma, 0);
  channels.beta = stride_of(a.beta, 0);
  const int64_t width = a.x->shape[1] / group_count;  // The channels of a group.
  const ChannelStrides groups{.y = width * channels.y,
                              .x = width * channels.x,
                              .gamma = width * channels.gamma,
                              .beta = width * channels.beta,
                              .mean = stride_of(a.mean, 1),
                              .rstd = stride_of(a.rstd, 1)};
  call.rows.add(a.x->shape[0], samples);
  call.rows.add(group_count, groups);
  call.inner.add(width, channels);
  call.inner.add_places(t);
  return call;
}

ChannelCall call_of(const bp_group_norm_args& a) { return call_with(a, a.groups); }
ChannelCall call_of(const bp_instance_norm_args& a) { return call_with(a, a.x->shape[1]); }

ChannelCall call_of(const bp_batch_norm_training_args& a) {
  ChannelCall call{
      kNormForward, a.eps, {a.y, a.x, a.gamma, a.beta, a.mean, nullptr, a.variance}, {}, {}};
  ChannelStrides channels = strides_of(call.tensors, 1);
  channels.gamma = stride_of(a.gamma, 0);
  channels.beta = stride_of(a.beta, 0);
  channels.mean = stride_of(a.mean, 0);
  channels.variance = stride_of(a.variance, 0);
  call.rows.add(a.x->shape[1], channels);
  call.inner.add(a.x->shape[0], strides_of(call.tensors, 0));
  call.inner.add_places(call.tensors);
  return call;
}

ChannelCall call_of(const bp_batch_norm_inference_args& a) {
  ChannelCall call{
      kNormGiven, a.eps, {a.y, a.x, a.gamma, a.beta, a.mean, nullptr, a.variance}, {}, {}};
  ChannelStrides channels = strides_of(call.tensors, 1);
  channels.gamma = stride_of(a.gamma, 0);
  channels.beta = stride_of(a.beta, 0);
  channels.mean = stride_of(a.mean, 0);
  channels.variance = stride_of(a.variance, 0);
  call.rows.add(a.x->shape[0], strides_of(call.tensors, 0));
  call.rows.add(a.x->shape[1], channels);
  call.inner.add_places(call.tensors);
  return call;
}

NormRecord record_of(const Launch& launch, const ChannelCall& call) {
  const ChannelTensors& t = call.tensors;
  NormRecord record{};
  record.y = address_of(launch, t.y);
  record.x = address_of(launch, t.x);
  record.gamma = address_of(launch, t.gamma);
  record.beta = address_of(launch, t.beta);
  record.mean = address_of(launch, t.mean);
  record.rstd = address_of(launch, t.rstd);
  record.variance = address_of(launch, t.variance);
  record.row_count = static_cast<uint64_t>(call.rows.count);
  record.row_size = static_cast<uint64_t>(call.inner.count);
  record.eps = static_cast<float>(call.eps);
  return record;
}

template <typename Args>
bp_status launch_norm(const Args& args, Launch& launch) {
  const ChannelCall call = call_of(args);
  const ChannelTensors& t = call.tensors;
  const ChannelAxes &rows = call.rows, &inner = call.inner;
  if (rows.count == 0) return BP_OK;
  NormRecord record = record_of(launch, call);
  const uint32_t row_rank = put_axes(
      rows.shape(),
      {rows.operand(0, t.y, record.row_y), rows.operand(1, t.x, record.row_x),
       rows.operand(2, t.gamma, record.row_gamma), rows.operand(3, t.beta, record.row_beta),
       rows.operand(4, t.mean, record.row_mean), rows.operand(5, t.rstd, record.row_rstd),
       rows.operand(6, t.variance, record.row_variance)},
      record.row_extents);
  const uint32_t inner_rank = put_axes(
      inner.shape(),
      {inner.operand(0, t.y, record.inner_y), inner.operand(1, t.x, record.inner_x),
       inner.operand(2, t.gamma, record.inner_gamma), inner.operand(3, t.beta, record.inner_beta)},
      record.inner_extents);
  const NormPass pass = {
      call.op,         t.x->dtype, true,
      row_rank,        inner_rank, lanes_of_row(launch, rows.count, inner.count, kMostNormTrips),
      record.row_count};
  Ranges reads(launch, {t.x, t.gamma, t.beta}), writes(launch, {t.y});
  for (const bp_tensor* statistic : {t.mean, t.rstd, t.variance}) {
    (call.op == kNormGiven ? reads : writes).add(statistic);
  }
  return submit_norm(launch, pass, record, {reads, writes});
}

template <typename Args>
bp_reason norm_supports(const Args& args) {
  const ChannelCall call = call_of(args);
  return norm_reason(call.rows.count, call.inner.count);
}

template <typename Args>
constexpr bp_kernel norm_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, launch_norm<Args>, norm_supports<Args>>(
      kernel_row(name, op, kF32Dtypes, BP_KERNEL_IN_PLACE));
}

}  // namespace

constinit const bp_kernel kGroupNorm =
    norm_kernel<bp_group_norm_args>("group_norm", BP_OP_GROUP_NORM);
constinit const bp_kernel kInstanceNorm =
    norm_kernel<bp_instance_norm_args>("instance_norm", BP_OP_INSTANCE_NORM);
constinit const bp_kernel kBatchNormInference =
    norm_kernel<bp_batch_norm_inference_args>("batch_norm_inference", BP_OP_BATCH_NORM_INFERENCE);
constinit const bp_kernel kBatchNormTraining =
    norm_kernel<bp_batch_norm_training_args>("batch_norm_training", BP_OP_BATCH_NORM_TRAINING);

}  // namespace bp::vulkan
