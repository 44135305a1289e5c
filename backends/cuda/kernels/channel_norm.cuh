// What the norms of channels (channel_norm.cu) and their gradients (channel_norm_backward.cu)
// share.
#pragma once

#include <array>

#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {

// A tensor with other axes, for a walk over rows. It has up to two axes more than tensors may have,
// because the channels are split into groups, and the samples may be no rows.
class ChannelView {
 public:
  ChannelView(const bp_tensor& tensor, uint32_t ndim) : tensor_(tensor) {
    tensor_.ndim = ndim;
    tensor_.shape = shape_.data();
    tensor_.strides = strides_.data();
  }
  ChannelView(const ChannelView&) = delete;

  ChannelView& set(uint32_t axis, int64_t extent, int64_t stride) {
    shape_[axis] = extent;
    strides_[axis] = stride;
    return *this;
  }
  const bp_tensor& get() const { return tensor_; }

 private:
  bp_tensor tensor_;
  std::array<int64_t, BP_MAX_RANK + 2> shape_{}, strides_{};
};

// The elements of a channel in one sample.
inline int64_t places_of(const bp_tensor& x) { return element_count(x.ndim - 2, x.shape + 2); }

}  // namespace bp::cuda
