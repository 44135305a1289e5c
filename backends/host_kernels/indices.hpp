// Helpers of ops with a tensor of indices: tensors in the shape of a loop, and indices that are out
// of range. An index out of range is found when the work runs, and is then a failure of the stream.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {

// A tensor as a loop walks it. It has the extents of another tensor, and strides that can be
// changed.
class Reshaped {
 public:
  // Takes the extents of `like`, and the strides of `tensor` for as many axes as `tensor` has.
  Reshaped(const bp_tensor& tensor, const bp_tensor& like) : tensor_(tensor) {
    std::copy_n(like.shape, like.ndim, extents_.begin());
    if (tensor.ndim == like.ndim) std::copy_n(tensor.strides, like.ndim, strides_.begin());
    tensor_.ndim = like.ndim;
    tensor_.shape = extents_.data();
    tensor_.strides = strides_.data();
  }
  Reshaped(const Reshaped&) = delete;

  Reshaped& set_stride(size_t axis, int64_t stride) {
    strides_[axis] = stride;
    return *this;
  }
  // Keeps only the first index of an axis.
  Reshaped& collapse(size_t axis) {
    extents_[axis] = std::min<int64_t>(extents_[axis], 1);
    return *this;
  }
  const bp_tensor* operator&() const { return &tensor_; }

 private:
  bp_tensor tensor_;
  std::array<int64_t, BP_MAX_RANK> extents_{}, strides_{};
};

// One index that is out of range, if there is one. Threads share the object.
class WrongIndex {
 public:
  void set(int64_t index) {
    value_ = index;
    is_set_ = true;
  }
  // Fails the work of `op` if an index was not below `extent`.
  void check(const char* op, int64_t extent) const {
    if (!is_set_) return;
    throw StatusError(BP_INVALID_ARGUMENT, bad_index_text(op, "an index", value_, extent));
  }

 private:
  std::atomic<int64_t> value_ = 0;
  std::atomic<bool> is_set_ = false;
};

}  // namespace bp::kernels
