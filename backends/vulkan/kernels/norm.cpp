// layer_norm and rms_norm, and their gradients (norm.comp).
#include "backends/vulkan/kernels/norm.hpp"

#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/axes.hpp"
#include "backends/vulkan/kernels/reduce.hpp"

namespace bp::vulkan {
namespace {

// The tensors of one of the ops. A tensor that the op lacks is NULL. In a gradient, y is grad_x.
struct NormCall {
  bool is_layer;
  int32_t normalized_ndim;
  double eps;
  const bp_tensor *x, *y;
  const bp_tensor *grad_y = nullptr, *gamma = nullptr, *beta = nullptr;
  const bp_tensor *mean = nullptr, *rstd = nullptr;
  const bp_tensor *grad_gamma = nullptr, *grad_beta = nullptr;

  uint32_t first_inner() const { return x->ndim - static_cast<uint32_t>(normalized_ndim); }
  int64_t row_size() const {
    int64_t size = 1;
    for (uint32_t i = first_inner(); i < x->ndim; ++i) size *= x->shape[i];
    return size;
  }
  int64_t row_count() const {
    int64_t count = 1;
    for (uint32_t i = 0; i < first_inner(); ++i) count *= x->shape[i];
    return count;
  }
};

// The rows of a column are summed in parts, so that the device has enough work, and no part takes
// too many trips.
struct Parts {
  int64_t count, size;
};

Parts parts_of(const NormCall& call) {
  const int64_t rows = call.row_count();
  const int64_t least = (rows + kMostNormTrips - 1) / kMostNormTrips;
  const int64_t count = std::max(std::clamp<int64_t>(rows / 32, 1, 64), least);
  return {count, (rows + count - 1) / count};
}

uint64_t sums_size_bytes(const NormCall& call) {
  return static_cast<uint64_t>(parts_of(call).count * call.row_size()) * sizeof(float);
}

// Returns an operand for the axes of a tensor from `first` on.
AxisOperand axes_from(const bp_tensor* tensor, uint32_t first, int64_t* to) {
  if (tensor == nullptr) return {nullptr, 0, to};
  return {tensor->strides + first, dtype_size_bytes(tensor->dtype), to};
}

// Returns the buffers 0 to 3 of norm_bound.comp.
BoundTensors bound_tensors(NormOp op, const NormCall& call) {
  return {op == kNormColumns ? nullptr : call.y, call.x, call.gamma,
          op == kNormForward ? call.beta : call.grad_y};
}

// Returns whether the rows of all tensors are vectors that can be bound.
bool has_vectors(const Launch& launch, NormOp op, const NormCall& call, const NormRecord& record,
                 uint32_t row_rank, uint32_t inner_rank) {
  if (inner_rank != 1 || call.row_size() % kNeighbours != 0) return false;
  const int64_t item = dtype_size_bytes(call.x->dtype);
  const auto is_dense = [&](const bp_tensor* t, const int64_t(&inner)[BP_MAX_RANK]) {
    return t == nullptr || inner[0] == item;
  };
  if (!is_dense(call.y, record.inner_y) || !is_dense(call.x, record.inner_x) ||
      !is_dense(call.grad_y, record.inner_grad_y) || !is_dense(call.gamma, record.inner_gamma) ||
      !is_dense(call.beta, record.inner_beta)) {
    return false;
  }
  for (uint32_t i = 0; i < row_rank; ++i) {
    if (record.row_y[i] % (item * kNeighbours) != 0 ||
        record.row_x[i] % (item * kNeighbours) != 0 ||
        record.row_grad_y[i] % (item * kNeighbours) != 0) {
      return false;
    }
  }
  return can_bind_all(launch, bound_tensors(op, call));
}

bp_status submit_call(Launch& launch, NormOp op, const NormCall& call, NormRecord& record,
                      const Ranges& reads, const Ranges& writes) {
  record.y = address_of(launch, call.y);
  record.x = address_of(launch, call.x);
  record.grad_y = address_of(launch, call.grad_y);
  record.gamma = address_of(launch, call.gamma);
  record.beta = address_of(launch, call.beta);
  record.mean = address_of(launch, call.mean);
  record.rstd = address_of(launch, call.rstd);
  record.row_count = static_cast<uint64_t>(call.row_count());
  record.row_size = static_cast<uint64_t>(call.row_size());
  record.eps = static_cast<float>(call.eps);
  const uint32_t first = call.first_inner();
  const std::span<const int64_t> shape(call.x->shape, call.x->ndim);
  const uint32_t row_rank =
      put_axes(shape.first(first),
               {axes_from(call.y, 0, record.row_y), axes_from(call.x, 0, record.row_x),
                axes_from(call.grad_y, 0, record.row_grad_y),
                axes_from(call.mean, 0, record.row_mean), axes_from(call.rstd, 0, record.row_rstd)},
               record.row_extents);
  const uint32_t inner_rank = put_axes(
      shape.subspan(first),
      {axes_from(call.y, first, record.inner_y), axes_from(call.x, first, record.inner_x),
       axes_from(call.grad_y, first, record.inner_grad_y),
       axes_from(call.gamma, 0, record.inner_gamma), axes_from(call.beta, 0, record.inner_beta)},
      record.inner_extents);
  const bool sums_columns = op == kNormColumns;
  const bool bound = has_vectors(launch, op, call, record, row_rank, inner_rank);
  const int64_t neighbours = bound ? kNeighbours : 1;
  const uint32_t lanes = sums_columns ? 1
                                      : lanes_of_row(launch, call.row_count(),
                                                     call.row_size() / neighbours, kMostNormTrips);
  const uint64_t rows =
      sums_columns ? record.part_count * record.row_size / static_cast<uint64_t>(neighbours)
                   : record.row_count;
  const NormPass pass = {op, call.x->dtype, call.is_layer, row_rank, inner_rank, lanes, rows};
  if (!bound) return submit_norm(launch, pass, record, {reads, writes});
  return submit_norm(launch, pass, record,
                     {reads, writes, bound_ranges(launch, bound_tensors(op, call))});
}

bp_status forward(Launch& launch, const NormCall& call) {
  NormRecord record{};
  if (call.row_count() == 0) return BP_OK;
  return submit_call(launch, kNormForward, call, record,
                     Ranges(launch, {call.x, call.gamma, call.beta}),
                     Ranges(launch, {call.y, call.mean, call.rstd}));
}

// Adds the parts of column sums.
bp_status add_parts(Launch& launch, const NormCall& call, const bp_tensor& to, uint64_t sums) {
  std::array<int64_t, BP_MAX_RANK + 1> shape{}, strides{};
  const auto ndim = static_cast<uint32_t>(call.normalized_ndim);
  int64_t size = 1;
  for (uint32_t i = ndim; i-- > 0; size *= to.shape[i]) {
    shape[i + 1] = to.shape[i];
    strides[i + 1] = size;
  }
  shape[0] = parts_of(call).count;
  strides[0] = size;
  const bp_tensor from{
      .shape = shape.data(), .strides = strides.data(), .ndim = ndim + 1, .dtype = BP_F32};
  Reduction reduction = make_reduction(BP_OP_SUM, from, to, 1);
  reduction.from_address = sums;
  reduction.to_address = launch.device_address(to);
  Ranges reads(launch);
  reads.add(launch.workspace());
  return submit_reduction(launch, reduction, reads, Ranges(launch, {&to}), 0);
}

bp_status column_sums(Launch& launch, const NormCall& call) {
  const Parts parts = parts_of(call);
  NormRecord record{};
  record.part_count = static_cast<uint32_t>(parts.count);
  record.part_size = static_cast<uint32_t>(parts.size);
  const uint64_t scratch = launch.workspace_address();
  if (call.grad_gamma != nullptr) record.gamma_sums = scratch;
  if (call.grad_beta != nullptr) record.beta_sums = scratch + sums_size_bytes(call);
  Ranges writes(launch);
  writes.add(launch.workspace());
  bp_status status =
      submit_call(launch, kNormColumns, call, record,
                  Ranges(launch, {call.x, call.grad_y, call.mean, call.rstd}), writes);
  if (status == BP_OK && call.grad_gamma != nullptr) {
    status = add_parts(launch, call, *call.grad_gamma, record.gamma_sums);
  }
  if (status == BP_OK && call.grad_beta != nullptr) {
    status = add_parts(launch, call, *call.grad_beta, record.beta_sums);
  }
  return status;
}

// Submits the sums over rows first, because grad_x may overwrite their operands.
bp_status backward(Launch& launch, const NormCall& call) {
  if (call.row_size() == 0) return BP_OK;
  if (call.grad_gamma != nullptr || call.grad_beta != nullptr) {
    const bp_status status = column_sums(launch, call);
    if (status != BP_OK) return status;
  }
  if (call.row_count() == 0) return BP_OK;
  NormRecord record{};
  return submit_call(launch, kNormBackward, call, record,
                     Ranges(launch, {call.x, call.grad_y, call.gamma, call.mean, call.rstd}),
                     Ranges(launch, {call.y}));
}

NormCall call_of(const bp_layer_norm_args& a) {
  return {.is_layer = true,
          .normalized_ndim = a.normalized_ndim,
          .eps = a.eps,
          .x = a.x,
          .y = a.y,
          .gamma = a.gamma,
          .beta = a.beta,
          .mean = a.mean,
          .rstd = a.rstd};
}
NormCall call_of(const bp_rms_norm_args& a) {
  return {.is_layer = false,
          .normalized_ndim = a.normalized_ndim,
          .eps = a.eps,
          .x = a.x,
          .y = a.y,
          .gamma = a.gamma,
          .rstd = a.rstd};
}
NormCall call_of(const bp_layer_norm_backward_args& a) {
  return {.is_layer = true,
          .normalized_ndim = a.normalized_ndim,
          .eps = a.eps,
          .x = a.x,
          .y = a.grad_x,
          .grad_y = a.grad_y,
          .gamma = a.gamma,
          .mean = a.mean,
          .rstd = a.rstd,
          .grad_gamma = a.grad_gamma,
          .grad_beta = a.grad_beta};
}
NormCall call_of(const bp_rms_norm_backward_args& a) {
  return {.is_layer = false,
          .normalized_ndim = a.normalized_ndim,
          .eps = a.eps,
          .x = a.x,
          .y = a.grad_x,
          .grad_y = a.grad_y,
          .gamma = a.gamma,
          .rstd = a.rstd,
          .grad_gamma = a.grad_gamma};
}

template <typename Args>
bp_reason norm_supports(const Args& args) {
  const NormCall call = call_of(args);
  return norm_reason(call.row_count(), call.row_size());
}

template <typename Args>
bp_status forward_launch(const Args& args, Launch& launch) {
  return forward(launch, call_of(args));
}

template <typename Args>
bp_status backward_launch(const Args& args, Launch& launch) {
  return backward(launch, call_of(args));
}

template <typename Args>
uint64_t backward_workspace(const Args& args, const Env&) {
  return 2 * sums_size_bytes(call_of(args));
}

constexpr auto kFlags = BP_KERNEL_IN_PLACE;

}  // namespace

bp_status submit_norm(Launch& launch, const NormPass& pass, const NormRecord& record,
                      const Touched& touched) {
  if (pass.lanes == 0) return launch.refuse(BP_UNSUPPORTED, kRowTooLong);
  const uint32_t size = row_group_size(launch, pass.lanes);
  const std::array<uint32_t, 7> constants = {size,
                                             pass.lanes,
                                             pass.op,
                                             one_of(kF32Dtypes, pass.dtype),
                                             pass.is_layer ? 1u : 0u,
                                             pass.row_rank,
                                             pass.inner_rank};
  const Module& module = touched.bound.empty() ? kNormModule : kNormBoundModule;
  return submit(launch, module, constants, record, ceil_divide(pass.rows, size / pass.lanes),
                touched);
}

bp_reason norm_reason(int64_t row_count, int64_t row_size) {
  if (row_size > kMostLanes * kMostNormTrips) return kRowTooLong;
  return row_count > int64_t{1} << 31 ? "there are more than 2^31 rows" : nullptr;
}

constinit const bp_kernel kLayerNorm =
    make_kernel<bp_layer_norm_args, forward_launch<bp_layer_norm_args>,
                norm_supports<bp_layer_norm_args>>(
        kernel_row("layer_norm", BP_OP_LAYER_NORM, kF32Dtypes, kFlags));
constinit const bp_kernel kLayerNormBackward =
    make_kernel<bp_layer_norm_backward_args, backward_launch<bp_layer_norm_backward_args>,
                norm_supports<bp_layer_norm_backward_args>,
                backward_workspace<bp_layer_norm_backward_args>>(
        kernel_row("layer_norm_backward", BP_OP_LAYER_NORM_BACKWARD, kF32Dtypes, kFlags));
constinit const bp_kernel kRmsNorm = make_kernel<bp_rms_norm_args, forward_launch<bp_rms_norm_args>,
                                                 norm_supports<bp_rms_norm_args>>(
    kernel_row("rms_norm", BP_OP_RMS_NORM, kF32Dtypes, kFlags));
constinit const bp_kernel kRmsNormBackward =
    make_kernel<bp_rms_norm_backward_args, backward_launch<bp_rms_norm_backward_args>,
                norm_supports<bp_rms_norm_backward_args>,
                backward_workspace<bp_rms_norm_backward_args>>(
        kernel_row("rms_norm_backward", BP_OP_RMS_NORM_BACKWARD, kF32Dtypes, kFlags));

}  // namespace bp::vulkan
