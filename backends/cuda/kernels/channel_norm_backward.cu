// The gradients of group_norm, instance_norm and batch_norm_training: frames and claims
// (channel_norm_planes.cu).
#include "backends/cuda/kernels/channel_norm.cuh"
#include "backends/cuda/kernels/channel_norm_planes.cuh"
#include "backends/cuda/kernels/list.hpp"

namespace bp::cuda {
namespace {

// A call of one of the ops. A tensor that is absent is NULL.
struct GradientCall {
  const bp_tensor *grad_y, *x, *gamma, *mean, *spread, *grad_x, *grad_gamma, *grad_beta;
  double eps;
  int64_t groups;  // In each sample. If 0, a unit is a channel of all samples, and `spread` is the
                   // variance; else it is rstd.

  bool has_groups() const { return groups != 0; }
  int64_t channels() const { return x->shape[1]; }
  int64_t width() const { return has_groups() ? channels() / groups : 1; }  // Channels of a group.
  bool joins_samples() const { return !has_groups() && places_of(*x) < kLeastPlaces; }
  int64_t samples() const { return joins_samples() ? 1 : x->shape[0]; }  // As planes see them.
  int64_t planes() const { return samples() * channels(); }
  int64_t units() const { return has_groups() ? samples() * groups : channels(); }
  int64_t planes_of_unit() const { return has_groups() ? width() : samples(); }

  // Returns the axes of elements of a plane, behind those of samples, groups and their channels.
  uint32_t element_axes() const {
    return last_axes(x->ndim + 2, static_cast<int32_t>(x->ndim - 1));
  }
  // Calls fn(view) for grad_y, x or grad_x.
  template <typename Fn>
  auto with_planes(const bp_tensor& t, const Fn& fn) const {
    ChannelView view(t, t.ndim + 2);
    view.set(0, samples(), t.strides[0])
        .set(1, has_groups() ? groups : channels(), width() * t.strides[1])
        .set(2, width(), t.strides[1])
        .set(3, joins_samples() ? x->shape[0] : 1, t.strides[0]);
    for (uint32_t i = 2; i < t.ndim; ++i) view.set(i + 2, t.shape[i], t.strides[i]);
    return fn(view.get());
  }
  RowTensor planes_of(const bp_tensor& t) const {
    return with_planes(t, [&](const bp_tensor& view) { return row_tensor(view, element_axes()); });
  }
  RowExtents extents() const {
    return with_planes(*x, [&](const bp_tensor& v) { return row_extents(v, element_axes()); });
  }
  // Returns a tensor with these strides by the sample, the group and its channel, by plane.
  RowTensor by_plane(const bp_tensor& t, int64_t sample, int64_t group, int64_t channel) const {
    ChannelView view(t, 3);
    view.set(0, samples(), sample)
        .set(1, has_groups() ? groups : channels(), group)
        .set(2, width(), channel);
    return rows_only(view.get());
  }
  RowTensor statistics(const bp_tensor& t) const {
    return has_groups() ? by_plane(t, t.strides[0], t.strides[1], 0)
                        : by_plane(t, 0, t.strides[0], 0);
  }
};

// The workspace: the sums of planes, the means of units, and the parts of cut rows.
struct GradientSpace {
  explicit GradientSpace(const GradientCall& call) {
    const uint64_t pair_bytes = call.x->dtype == BP_F64 ? 2 * sizeof(double) : 2 * sizeof(float);
    const auto reserve = [&](int64_t pairs) {
      return (static_cast<uint64_t>(pairs) * pair_bytes + kPartBytes - 1) / kPartBytes * kPartBytes;
    };
    means_offset = reserve(2 * call.planes());
    parts_offset = means_offset + reserve(call.units());
    size_bytes =
        parts_offset + row_parts_bytes(call.planes_of(*call.x), call.extents(), kPlaneReductions);
  }

  uint64_t means_offset, parts_offset, size_bytes;
};

PlanesPlan planes_plan(const GradientCall& call, const GradientSpace& space, Launch& launch) {
  PlanesPlan plan;
  const RowExtents extents = call.extents();
  plan.grad_y = call.planes_of(*call.grad_y);
  plan.x = call.planes_of(*call.x);
  plan.grad_x = call.planes_of(*call.grad_x);
  plan.mean = call.statistics(*call.mean);
  plan.spread = call.statistics(*call.spread);
  plan.means = call.has_groups() ? call.by_plane(*call.mean, call.groups, 1, 0)
                                 : call.by_plane(*call.mean, 0, 1, 0);
  plan.means.data = launch.workspace() + space.means_offset;
  if (call.gamma != nullptr) {
    const int64_t stride = call.gamma->strides[0];
    plan.gamma.is_given = true;
    plan.gamma.tensor = call.by_plane(*call.gamma, 0, call.width() * stride, stride);
  }
  plan.sums = launch.workspace();
  plan.has_rstd = call.has_groups();
  plan.eps = call.eps;
  plan.rows = static_cast<uint32_t>(extents.rows);
  plan.count = static_cast<uint32_t>(extents.count);
  plan.has_vectors = plan.grad_y.has_vectors && plan.x.has_vectors && plan.grad_x.has_vectors;
  plan.cut.parts = launch.workspace() + space.parts_offset;
  return plan;
}

// Joins the sums of planes to the means of units.
bp_status submit_means(const GradientCall& call, const PlanesPlan& planes, Launch& launch) {
  JoinPlan plan;
  plan.sums = planes.sums;
  plan.takes_h = true;
  plan.means = planes.means.data;
  plan.rows = static_cast<uint32_t>(call.units());
  plan.count = static_cast<uint32_t>(call.planes_of_unit());
  if (call.has_groups()) {
    plan.row_step = plan.count;
  } else {
    plan.plane_step = static_cast<uint32_t>(call.channels());
  }
  plan.divisor = static_cast<double>(plan.count) * planes.count;
  return submit_join(plan, call.x->dtype, launch);
}

// Joins the sums of planes to the gradients of gamma and beta.
bp_status submit_channels(const GradientCall& call, const PlanesPlan& planes, Launch& launch) {
  if (call.grad_gamma == nullptr && call.grad_beta == nullptr) return BP_OK;
  JoinPlan plan;
  plan.sums = planes.sums;
  plan.grad_gamma = {call.grad_gamma, 0};
  plan.grad_beta = {call.grad_beta, 0};
  plan.rows = plan.plane_step = static_cast<uint32_t>(call.channels());
  plan.count = static_cast<uint32_t>(call.samples());
  return submit_join(plan, call.x->dtype, launch);
}

bp_status submit_gradient(const GradientCall& call, Launch& launch) {
  const PlanesPlan plan = planes_plan(call, GradientSpace(call), launch);
  const RowExtents extents = call.extents();
  const bp_dtype dtype = call.x->dtype;
  bp_status status = submit_plane_sums(plan, extents, dtype, launch);
  if (status == BP_OK) status = submit_channels(call, plan, launch);
  if (status != BP_OK || extents.rows == 0 || extents.count == 0) return status;
  status = submit_means(call, plan, launch);
  if (status != BP_OK) return status;
  return submit_plane_write(plan, extents, dtype, launch);
}

template <typename Args>
GradientCall call_with(const Args& a, const bp_tensor* spread, int64_t groups) {
  return {a.grad_y, a.x,          a.gamma,     a.mean, spread,
          a.grad_x, a.grad_gamma, a.grad_beta, a.eps,  groups};
}
GradientCall call_of(const bp_group_norm_backward_args& a) {
  return call_with(a, a.rstd, a.mean->shape[1]);
}
GradientCall call_of(const bp_batch_norm_training_backward_args& a) {
  return call_with(a, a.variance, 0);
}

template <typename Args>
bp_status launch_gradient(const Args& args, Launch& launch) {
  return submit_gradient(call_of(args), launch);
}

template <typename Args>
uint64_t gradient_workspace(const Args& args, const Env&) {
  return GradientSpace(call_of(args)).size_bytes;
}

template <typename Args>
bp_reason gradient_supports(const Args& args) {
  const GradientCall call = call_of(args);
  return call.with_planes(
      *args.x, [&](const bp_tensor& view) { return too_many_rows(view, call.element_axes()); });
}

template <typename Args>
constexpr bp_kernel gradient_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, launch_gradient<Args>, gradient_supports<Args>,
                     gradient_workspace<Args>>(
      kernel_row(name, op, kFloatDtypes, BP_KERNEL_IN_PLACE));
}

}  // namespace

constinit const bp_kernel kGroupNormBackward =
    gradient_kernel<bp_group_norm_backward_args>("group_norm_backward", BP_OP_GROUP_NORM_BACKWARD);
constinit const bp_kernel kBatchNormTrainingBackward =
    gradient_kernel<bp_batch_norm_training_backward_args>("batch_norm_training_backward",
                                                          BP_OP_BATCH_NORM_TRAINING_BACKWARD);

}  // namespace bp::cuda
