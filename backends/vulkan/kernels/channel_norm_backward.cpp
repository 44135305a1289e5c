// The gradients of group_norm, instance_norm and batch_norm_training
// (channel_norm_backward.comp).
#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/axes.hpp"
#include "backends/vulkan/kernels/norm.hpp"
#include "backends/vulkan/kernels/scratch.hpp"

namespace bp::vulkan {
namespace {

enum GradientOp : uint32_t { kSums = 0, kJoin = 1, kWrite = 2 };

struct GradientRecord {
  uint64_t grad_x, grad_y, x, gamma, mean, spread;
  uint64_t sums, means;
  uint64_t row_count, row_size;
  float eps;
  uint32_t plane_extents[BP_MAX_RANK];
  int64_t plane_grad_x[BP_MAX_RANK], plane_grad_y[BP_MAX_RANK], plane_x[BP_MAX_RANK],
      plane_gamma[BP_MAX_RANK], plane_mean[BP_MAX_RANK], plane_spread[BP_MAX_RANK],
      plane_means[BP_MAX_RANK];
  uint32_t inner_extents[BP_MAX_RANK];
  int64_t inner_grad_x[BP_MAX_RANK], inner_grad_y[BP_MAX_RANK], inner_x[BP_MAX_RANK];
  uint32_t row_step, plane_step;
  float divisor;
  uint64_t joined_g, joined_gu;
  int64_t stride_g, stride_gu;
};

// A call of one of the ops. A tensor that is absent is NULL.
struct GradientCall {
  // Planes of fewer places are joined over all samples if their mean is.
  static constexpr int64_t kLeastPlaces = 16;

  const bp_tensor *grad_y, *x, *gamma, *mean, *spread, *grad_x, *grad_gamma, *grad_beta;
  double eps;
  int64_t groups;  // In each sample. If 0, a unit is a channel of all samples, and `spread` is the
                   // variance; else it is rstd.

  bool has_groups() const { return groups != 0; }
  int64_t all_samples() const { return x->shape[0]; }
  int64_t channels() const { return x->shape[1]; }
  int64_t places() const { return element_count(x->ndim - 2, x->shape + 2); }
  int64_t width() const { return has_groups() ? channels() / groups : 1; }  // Channels of a group.

  bool joins_samples() const { return !has_groups() && places() < kLeastPlaces; }
  int64_t samples() const { return joins_samples() ? 1 : all_samples(); }  // As planes see them.
  int64_t planes() const { return samples() * channels(); }
  int64_t plane_size() const { return joins_samples() ? all_samples() * places() : places(); }
  int64_t units() const { return has_groups() ? samples() * groups : channels(); }
  int64_t planes_of_unit() const { return has_groups() ? width() : samples(); }
};

// The strides of a tensor in elements: by the sample, the group and the channel of a plane.
using PlaneStrides = std::array<int64_t, 3>;

PlaneStrides strides_of_planes(const bp_tensor& t, int64_t width) {
  return {t.strides[0], width * t.strides[1], t.strides[1]};
}

// Returns the strides of the mean or what is like it.
PlaneStrides strides_of_units(const GradientCall& call, const int64_t* strides) {
  if (call.has_groups()) return {strides[0], strides[1], 0};
  return {0, strides[0], 0};
}

// Writes the axes over planes, and returns their number.
uint32_t put_plane_axes(const GradientCall& call, GradientRecord& record) {
  const int64_t width = call.width();
  const int64_t shape[] = {call.samples(), call.channels() / std::max<int64_t>(1, width), width};
  const PlaneStrides grad_x = strides_of_planes(*call.grad_x, width),
                     grad_y = strides_of_planes(*call.grad_y, width),
                     x = strides_of_planes(*call.x, width),
                     mean = strides_of_units(call, call.mean->strides),
                     spread = strides_of_units(call, call.spread->strides);
  PlaneStrides gamma{};
  if (call.gamma != nullptr) gamma = {0, width * call.gamma->strides[0], call.gamma->strides[0]};
  const int64_t dense[] = {call.has_groups() ? call.groups : 1, 1};
  const PlaneStrides means = strides_of_units(call, dense);
  const int64_t item = dtype_size_bytes(call.x->dtype);
  return put_axes(shape,
                  {{grad_x.data(), item, record.plane_grad_x},
                   {grad_y.data(), item, record.plane_grad_y},
                   {x.data(), item, record.plane_x},
                   {gamma.data(), item, record.plane_gamma},
                   {mean.data(), sizeof(float), record.plane_mean},
                   {spread.data(), sizeof(float), record.plane_spread},
                   {means.data(), 2 * sizeof(float), record.plane_means}},
                  record.plane_extents);
}

// Writes the axes of a plane, and returns their number.
uint32_t put_inner_axes(const GradientCall& call, GradientRecord& record) {
  const uint32_t rank = call.x->ndim - 1;  // The samples and the axes of places.
  using Axes = std::array<int64_t, BP_MAX_RANK>;
  const auto of = [&](int64_t first, const int64_t* all) {
    Axes axes{first};
    std::copy_n(all + 2, rank - 1, axes.begin() + 1);
    return axes;
  };
  const Axes shape = of(call.joins_samples() ? call.all_samples() : 1, call.x->shape),
             grad_x = of(call.grad_x->strides[0], call.grad_x->strides),
             grad_y = of(call.grad_y->strides[0], call.grad_y->strides),
             x = of(call.x->strides[0], call.x->strides);
  const int64_t item = dtype_size_bytes(call.x->dtype);
  return put_axes({shape.data(), rank},
                  {{grad_x.data(), item, record.inner_grad_x},
                   {grad_y.data(), item, record.inner_grad_y},
                   {x.data(), item, record.inner_x}},
                  record.inner_extents);
}

// The workspace.
struct GradientScratch {
  GradientScratch(const GradientCall& call, Scratch& scratch)
      : sums(scratch.take_bytes(pairs_size_bytes(2 * call.planes()))),
        means(scratch.take_bytes(pairs_size_bytes(call.units()))) {}
  static uint64_t pairs_size_bytes(int64_t count) {
    return static_cast<uint64_t>(count) * 2 * sizeof(float);
  }

  uint64_t sums, means;
};

// The constants of a dispatch behind those of rows.
struct GradientPass {
  GradientOp op;
  bp_dtype joined = BP_F32;
  uint32_t plane_rank = 1, inner_rank = 1;
};

bp_status submit_pass(Launch& launch, const GradientCall& call, const GradientPass& pass,
                      const GradientRecord& record, const Touched& touched) {
  const uint32_t lanes = lanes_of_row(launch, static_cast<int64_t>(record.row_count),
                                      static_cast<int64_t>(record.row_size), kMostNormTrips);
  if (lanes == 0) return launch.refuse(BP_UNSUPPORTED, kRowTooLong);
  const uint32_t size = row_group_size(launch, lanes);
  const std::array<uint32_t, 8> constants = {size,
                                             lanes,
                                             pass.op,
                                             one_of(kF32Dtypes, call.x->dtype),
                                             one_of(kF32Dtypes, pass.joined),
                                             call.has_groups() ? 1u : 0u,
                                             pass.plane_rank,
                                             pass.inner_rank};
  return submit(launch, kChannelNormBackwardModule, constants, record,
                ceil_divide(record.row_count, size / lanes), touched);
}

// Sums each plane, or writes its part of grad_x.
bp_status submit_planes(Launch& launch, const GradientCall& call, GradientOp op,
                        const GradientScratch& scratch) {
  if (call.planes() == 0 || (op == kWrite && call.plane_size() == 0)) return BP_OK;
  GradientRecord record{};
  record.grad_x = address_of(launch, call.grad_x);
  record.grad_y = address_of(launch, call.grad_y);
  record.x = address_of(launch, call.x);
  record.gamma = address_of(launch, call.gamma);
  record.mean = address_of(launch, call.mean);
  record.spread = address_of(launch, call.spread);
  record.sums = scratch.sums;
  record.means = scratch.means;
  record.row_count = static_cast<uint64_t>(call.planes());
  record.row_size = static_cast<uint64_t>(call.plane_size());
  record.eps = static_cast<float>(call.eps);
  GradientPass pass{.op = op};
  pass.plane_rank = put_plane_axes(call, record);
  pass.inner_rank = put_inner_axes(call, record);
  Ranges reads(launch, {call.grad_y, call.x, call.gamma, call.mean, call.spread}), writes(launch);
  if (op == kSums) {
    writes.add(launch.workspace());
  } else {
    reads.add(launch.workspace());
    writes.add(call.grad_x);
  }
  return submit_pass(launch, call, pass, record, {reads, writes});
}

// Joins the sums of planes to the means of units.
bp_status submit_means(Launch& launch, const GradientCall& call, const GradientScratch& scratch) {
  if (call.planes() == 0) return BP_OK;
  GradientRecord record{};
  record.sums = scratch.sums + 2 * sizeof(float);  // Of h.
  record.row_count = static_cast<uint64_t>(call.units());
  record.row_size = static_cast<uint64_t>(call.planes_of_unit());
  record.row_step = call.has_groups() ? static_cast<uint32_t>(call.width()) : 1;
  record.plane_step = call.has_groups() ? 1 : static_cast<uint32_t>(call.channels());
  record.divisor = static_cast<float>(call.planes_of_unit() * call.plane_size());
  record.joined_g = scratch.means;
  record.joined_gu = scratch.means + sizeof(float);
  record.stride_g = record.stride_gu = 2 * sizeof(float);
  Ranges reads(launch), writes(launch);
  reads.add(launch.workspace());
  writes.add(launch.workspace());
  return submit_pass(launch, call, {.op = kJoin}, record, {reads, writes});
}

// Joins the sums of planes to the gradients of gamma and beta.
bp_status submit_channels(Launch& launch, const GradientCall& call,
                          const GradientScratch& scratch) {
  GradientRecord record{};
  record.joined_g = address_of(launch, call.grad_beta);
  record.joined_gu = address_of(launch, call.grad_gamma);
  if (record.joined_g == 0 && record.joined_gu == 0) return BP_OK;
  record.sums = scratch.sums;
  record.row_count = static_cast<uint64_t>(call.channels());
  record.row_size = static_cast<uint64_t>(call.samples());
  record.row_step = 1;
  record.plane_step = static_cast<uint32_t>(call.channels());
  record.divisor = 1;
  const int64_t item = dtype_size_bytes(call.x->dtype);
  if (call.grad_beta != nullptr) record.stride_g = call.grad_beta->strides[0] * item;
  if (call.grad_gamma != nullptr) record.stride_gu = call.grad_gamma->strides[0] * item;
  Ranges reads(launch);
  reads.add(launch.workspace());
  return submit_pass(launch, call, {.op = kJoin, .joined = call.x->dtype}, record,
                     {reads, Ranges(launch, {call.grad_gamma, call.grad_beta})});
}

template <typename Args>
GradientCall call_with(const Args& a, const bp_tensor* spread, int64_t groups) {
  return {.grad_y = a.grad_y,
          .x = a.x,
          .gamma = a.gamma,
          .mean = a.mean,
          .spread = spread,
          .grad_x = a.grad_x,
          .grad_gamma = a.grad_gamma,
          .grad_beta = a.grad_beta,
          .eps = a.eps,
          .groups = groups};
}

GradientCall call_of(const bp_group_norm_backward_args& a) {
  return call_with(a, a.rstd, a.mean->shape[1]);
}
GradientCall call_of(const bp_batch_norm_training_backward_args& a) {
  return call_with(a, a.variance, 0);
}

template <typename Args>
bp_status launch_gradient(const Args& args, Launch& launch) {
  const GradientCall call = call_of(args);
  Scratch memory(launch);
  const GradientScratch scratch(call, memory);
  bp_status status = submit_planes(launch, call, kSums, scratch);
  if (status == BP_OK) status = submit_channels(launch, call, scratch);
  if (status == BP_OK) status = submit_means(launch, call, scratch);
  if (status == BP_OK) status = submit_planes(launch, call, kWrite, scratch);
  return status;
}

template <typename Args>
uint64_t gradient_workspace(const Args& args, const Env&) {
  Scratch memory;
  const GradientScratch scratch(call_of(args), memory);
  return memory.size_bytes();
}

template <typename Args>
bp_reason gradient_supports(const Args& args) {
  const GradientCall call = call_of(args);
  if (bp_reason reason = norm_reason(call.planes(), call.plane_size())) return reason;
  return norm_reason(call.units(), std::max(call.samples(), call.planes_of_unit()));
}

template <typename Args>
constexpr bp_kernel gradient_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, launch_gradient<Args>, gradient_supports<Args>,
                     gradient_workspace<Args>>(
      kernel_row(name, op, kF32Dtypes, BP_KERNEL_IN_PLACE));
}

}  // namespace

constinit const bp_kernel kGroupNormBackward =
    gradient_kernel<bp_group_norm_backward_args>("group_norm_backward", BP_OP_GROUP_NORM_BACKWARD);
constinit const bp_kernel kBatchNormTrainingBackward =
    gradient_kernel<bp_batch_norm_training_backward_args>("batch_norm_training_backward",
                                                          BP_OP_BATCH_NORM_TRAINING_BACKWARD);

}  // namespace bp::vulkan
