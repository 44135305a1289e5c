// The parts that layer_norm, rms_norm and their gradients share. Each row is normalized by itself.
//
//   layer_norm   u = (x - mean) * rstd    y = u * gamma + beta
//   rms_norm     u = x * rstd             y = u * gamma
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/host_kernels/strided.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// Gives the places where the rows of a tensor begin. Rows are counted along the first axes, in
// row-major order.
class RowPlaces {
 public:
  RowPlaces() = default;
  RowPlaces(const View& view, uint32_t outer_ndim, int64_t element_size_bytes);

  template <typename T>
  T* at(int64_t row) const {
    std::byte* place = address_;
    for (size_t axis = rank_; axis-- > 1; row /= extents_[axis]) {
      place += row % extents_[axis] * strides_[axis];
    }
    return reinterpret_cast<T*>(place + row * strides_[0]);
  }

 private:
  std::byte* address_ = nullptr;
  size_t rank_ = 0;  // The number of axes after merging. If it is 0, strides_[0] is 0.
  std::array<int64_t, BP_MAX_RANK> extents_{}, strides_{};  // The strides count bytes.
};

// An operand of a norm. It is absent, or has rows whose elements are neighbours; a copy is made if
// the tensor does not have such rows. If the norm takes runs, the rows may instead consist of runs
// of neighbours, which have one length and one distance.
class NormOperand {
 public:
  NormOperand() = default;
  // Makes an operand; NULL means absent. The first outer_ndim axes count rows.
  NormOperand(const bp_tensor* tensor, uint32_t outer_ndim, bool takes_runs = false);

  bool is_given() const { return is_given_; }

  // Returns the length of the runs, or 0 if rows are neighbours or are copied.
  int64_t run_length() const { return run_length_; }
  // Makes a copy take the place of the runs.
  void copy_runs();
  // Returns how many elements lie between the beginnings of runs of `length`.
  int64_t run_step(int64_t length) const { return run_length_ == 0 ? length : run_step_; }

  // Reserves the place of the copy in the workspace, which ends at `end` so far.
  void reserve(uint64_t& end) { copy_.offset = reserve_bytes(copy_.size_bytes(), end); }
  // Returns the rows, once the workspace is known.
  RowPlaces rows(std::byte* workspace);
  // Copy the elements to the copy, and back, if there is a copy.
  void fetch(int thread_count) const {
    if (copy_.is_needed) copy_.fetch(thread_count);
  }
  void store(int thread_count) const {
    if (copy_.is_needed) copy_.store(thread_count);
  }

 private:
  bool is_given_ = false;
  uint32_t outer_ndim_ = 0;
  int64_t element_size_bytes_ = 0;
  int64_t run_length_ = 0, run_step_ = 0;  // In elements.
  bp_dtype dtype_ = 0;
  View view_;
  DenseCopy copy_;
};

// The extents and the kind of a norm.
struct NormShape {
  NormShape(const bp_tensor& x, int32_t normalized_ndim, bool its_is_centered);

  bool is_centered;  // The norm subtracts the mean.
  bp_dtype dtype;
  uint32_t outer_ndim;
  int64_t rows = 1, cols = 1;
};

struct NormForward {
  NormForward(const NormShape& its_shape, double its_eps) : shape(its_shape), eps(its_eps) {}

  // Reserves the workspace, and returns its size.
  uint64_t reserve();
  bp_status submit(Launch& launch);

  NormShape shape;
  double eps;
  NormOperand x, gamma, beta, y, mean, rstd;
};

struct NormBackward {
  explicit NormBackward(const NormShape& its_shape) : shape(its_shape) {}

  // Reserves the workspace, and returns its size. Of grad_y, x and grad_x it copies those that
  // consist of runs of another length than the first of them that does.
  uint64_t reserve();
  bp_status submit(Launch& launch);

  NormShape shape;
  NormOperand grad_y, x, gamma, mean, rstd, grad_x, grad_gamma, grad_beta;
  int64_t run_length = 0;
  uint64_t sums_offset = 0;
};

// The runs of neighbours in each row of a gradient, in elements. A row has one run if its elements
// are neighbours in all operands. The steps are the distances of the runs.
struct NormRuns {
  int64_t length, grad_y_step, x_step, grad_x_step;
};

// A norm with addresses, as the loops use it. The address of an absent operand is NULL.
struct NormRows {
  NormShape shape;
  double eps;
  RowPlaces x, y, mean, rstd;
  const std::byte *gamma, *beta;
  bool has_mean, has_rstd;
};

struct NormBackwardRows {
  NormShape shape;
  NormRuns runs;
  RowPlaces grad_y, x, mean, rstd, grad_x;
  const std::byte* gamma;
  std::byte *grad_gamma, *grad_beta;
  std::byte* sums;  // (blocks, 2, cols) in the computing type; NULL if not wanted.
};

// Returns the number of blocks of rows. The blocks' sums of grad_gamma and grad_beta are added in
// order. The number depends on the extents alone, so equal input gives equal bits for any number of
// threads. A block has so few rows that its sums keep their digits.
int64_t norm_block_count(const NormShape& shape);

void run_norm(const NormRows& norm, int thread_count);
void run_norm_backward(const NormBackwardRows& norm, int thread_count);

}  // namespace bp::kernels
