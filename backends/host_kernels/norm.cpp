#include "backends/host_kernels/norm.hpp"

#include <algorithm>

namespace bp::kernels {

RowPlaces::RowPlaces(const View& view, uint32_t outer_ndim, int64_t element_size_bytes)
    : address_(view.address) {
  for (uint32_t i = 0; i < outer_ndim; ++i) {
    if (view.shape[i] == 1) continue;
    const int64_t stride = view.strides[i] * element_size_bytes;
    const size_t last = rank_ - 1;
    if (rank_ > 0 && strides_[last] == stride * view.shape[i]) {
      extents_[last] *= view.shape[i];
      strides_[last] = stride;
    } else {
      extents_[rank_] = view.shape[i];
      strides_[rank_++] = stride;
    }
  }
}

namespace {

// The runs of neighbours that the axes of a view from `first` on consist of.
struct Runs {
  int64_t length = 1, step = 0;
  bool are_even = true;  // They have one distance.
};

Runs runs_of(const View& view, uint32_t first) {
  Runs runs;
  int64_t count = 1;
  for (uint32_t axis = view.ndim; axis-- > first;) {
    const int64_t extent = view.shape[axis], stride = view.strides[axis];
    if (extent == 1) continue;
    if (count == 1 && stride == runs.length) {
      runs.length *= extent;
    } else if (count == 1) {
      runs.step = stride;
      count = extent;
    } else {
      runs.are_even = runs.are_even && stride == runs.step * count;
      count *= extent;
    }
  }
  return runs;
}

}  // namespace

NormOperand::NormOperand(const bp_tensor* tensor, uint32_t outer_ndim, bool takes_runs)
    : outer_ndim_(outer_ndim) {
  constexpr int64_t kLeastRun = 64;  // A copy costs less than many shorter runs.
  if (tensor == nullptr) return;
  is_given_ = true;
  dtype_ = tensor->dtype;
  element_size_bytes_ = dtype_size_bytes(tensor->dtype);
  view_ = view_of(*tensor);
  const bool is_dense =
      is_contiguous(view_.ndim - outer_ndim, view_.shape + outer_ndim, view_.strides + outer_ndim);
  if (is_dense) return;
  const Runs runs = runs_of(view_, outer_ndim);
  if (takes_runs && runs.are_even && runs.length >= kLeastRun) {
    run_length_ = runs.length;
    run_step_ = runs.step;
    return;
  }
  copy_runs();
}

void NormOperand::copy_runs() {
  run_length_ = 0;
  copy_ = DenseCopy(view_, dtype_, dtype_);
}

RowPlaces NormOperand::rows(std::byte* workspace) {
  if (!copy_.is_needed) return {view_, outer_ndim_, element_size_bytes_};
  copy_.dense.address = workspace + copy_.offset;
  return {copy_.dense, outer_ndim_, element_size_bytes_};
}

NormShape::NormShape(const bp_tensor& x, int32_t normalized_ndim, bool its_is_centered)
    : is_centered(its_is_centered),
      dtype(x.dtype),
      outer_ndim(x.ndim - static_cast<uint32_t>(normalized_ndim)) {
  for (uint32_t i = 0; i < x.ndim; ++i) (i < outer_ndim ? rows : cols) *= x.shape[i];
}

int64_t norm_block_count(const NormShape& shape) {
  constexpr int64_t kBlocks = 64, kLeastRows = 16, kMostRows = 256;
  const int64_t needed = (shape.rows + kMostRows - 1) / kMostRows;
  return std::max(std::clamp<int64_t>(shape.rows / kLeastRows, 1, kBlocks), needed);
}

uint64_t NormForward::reserve() {
  uint64_t size_bytes = 0;
  for (NormOperand* operand : {&x, &gamma, &beta, &y}) operand->reserve(size_bytes);
  return size_bytes;
}

bp_status NormForward::submit(Launch& launch) {
  reserve();
  return launch.submit([norm = *this, workspace = launch.workspace(),
                        thread_count = launch.thread_count()]() mutable {
    const NormRows rows = {norm.shape,
                           norm.eps,
                           norm.x.rows(workspace),
                           norm.y.rows(workspace),
                           norm.mean.rows(workspace),
                           norm.rstd.rows(workspace),
                           norm.gamma.rows(workspace).at<std::byte>(0),
                           norm.beta.rows(workspace).at<std::byte>(0),
                           norm.mean.is_given(),
                           norm.rstd.is_given()};
    for (const NormOperand* operand : {&norm.x, &norm.gamma, &norm.beta}) {
      operand->fetch(thread_count);
    }
    run_norm(rows, thread_count);
    norm.y.store(thread_count);
  });
}

uint64_t NormBackward::reserve() {
  run_length = shape.cols;
  for (NormOperand* operand : {&grad_y, &x, &grad_x}) {
    const int64_t length = operand->run_length();
    if (length == 0 || length == run_length) continue;
    if (run_length == shape.cols) {
      run_length = length;
    } else {
      operand->copy_runs();
    }
  }
  uint64_t size_bytes = 0;
  for (NormOperand* operand : {&grad_y, &x, &gamma, &grad_x, &grad_gamma, &grad_beta}) {
    operand->reserve(size_bytes);
  }
  const bool has_sums = grad_gamma.is_given() || grad_beta.is_given();
  const int64_t sums = has_sums ? norm_block_count(shape) * 2 * shape.cols : 0;
  const int64_t sum_size_bytes = shape.dtype == BP_F64 ? sizeof(double) : sizeof(float);
  sums_offset = reserve_bytes(static_cast<uint64_t>(sums * sum_size_bytes), size_bytes);
  return size_bytes;
}

bp_status NormBackward::submit(Launch& launch) {
  reserve();
  return launch.submit([norm = *this, workspace = launch.workspace(),
                        thread_count = launch.thread_count()]() mutable {
    const bool has_sums = norm.grad_gamma.is_given() || norm.grad_beta.is_given();
    const int64_t length = norm.run_length;
    const NormRuns runs = {length, norm.grad_y.run_step(length), norm.x.run_step(length),
                           norm.grad_x.run_step(length)};
    const NormBackwardRows rows = {norm.shape,
                                   runs,
                                   norm.grad_y.rows(workspace),
                                   norm.x.rows(workspace),
                                   norm.mean.rows(workspace),
                                   norm.rstd.rows(workspace),
                                   norm.grad_x.rows(workspace),
                                   norm.gamma.rows(workspace).at<std::byte>(0),
                                   norm.grad_gamma.rows(workspace).at<std::byte>(0),
                                   norm.grad_beta.rows(workspace).at<std::byte>(0),
                                   has_sums ? workspace + norm.sums_offset : nullptr};
    for (const NormOperand* operand : {&norm.grad_y, &norm.x, &norm.gamma}) {
      operand->fetch(thread_count);
    }
    run_norm_backward(rows, thread_count);
    for (const NormOperand* operand : {&norm.grad_x, &norm.grad_gamma, &norm.grad_beta}) {
      operand->store(thread_count);
    }
  });
}

}  // namespace bp::kernels
