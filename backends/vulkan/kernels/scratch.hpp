// The workspace of a launch, cut into tensors without gaps. The same code computes the size of the
// workspace when there is no launch.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

// A tensor in the workspace.
class ScratchTensor {
 public:
  ScratchTensor() = default;
  ScratchTensor(const bp_buffer_ref& place, bp_dtype dtype, std::initializer_list<int64_t> shape)
      : ScratchTensor(place, dtype, shape.begin(), static_cast<uint32_t>(shape.size())) {}
  ScratchTensor(const bp_buffer_ref& place, bp_dtype dtype, const int64_t* shape, uint32_t ndim)
      : place_(place), dtype_(dtype), ndim_(ndim) {
    for (uint32_t i = ndim; i-- > 0; count_ *= shape[i]) {
      shape_[i] = shape[i];
      strides_[i] = count_;
    }
    refresh();
  }
  ScratchTensor(const ScratchTensor& other) { *this = other; }
  ScratchTensor& operator=(const ScratchTensor& other) {
    place_ = other.place_;
    dtype_ = other.dtype_;
    ndim_ = other.ndim_;
    count_ = other.count_;
    shape_ = other.shape_;
    strides_ = other.strides_;
    refresh();
    return *this;
  }

  const bp_tensor& tensor() const { return tensor_; }
  uint64_t size_bytes() const { return static_cast<uint64_t>(count_ * dtype_size_bytes(dtype_)); }

 private:
  // Makes the tensor point into this object.
  void refresh() {
    tensor_ = {.buffer = place_.buffer,
               .byte_offset = place_.byte_offset,
               .shape = shape_.data(),
               .strides = strides_.data(),
               .ndim = ndim_,
               .dtype = dtype_};
  }

  bp_buffer_ref place_{};
  bp_dtype dtype_ = BP_F32;
  uint32_t ndim_ = 0;
  int64_t count_ = 1;
  std::array<int64_t, BP_MAX_RANK> shape_{}, strides_{};
  bp_tensor tensor_{};
};

class Scratch {
 public:
  Scratch() = default;  // It only counts bytes.
  explicit Scratch(const Launch& launch)
      : place_(launch.workspace_ref()), address_(launch.workspace_address()) {}

  ScratchTensor take(bp_dtype dtype, std::initializer_list<int64_t> shape) {
    return reserve(ScratchTensor(next(), dtype, shape));
  }
  ScratchTensor take(bp_dtype dtype, const int64_t* shape, uint32_t ndim) {
    return reserve(ScratchTensor(next(), dtype, shape, ndim));
  }
  ScratchTensor like(const bp_tensor& t) { return take(t.dtype, t.shape, t.ndim); }

  // Takes `bytes` and returns their device address, which has no meaning if nothing is launched.
  uint64_t take_bytes(uint64_t bytes) {
    const uint64_t address = address_ + used_;
    advance(bytes);
    return address;
  }

  uint64_t size_bytes() const { return used_; }

 private:
  static constexpr uint64_t kAlignmentBytes = 256;

  bp_buffer_ref next() const { return {place_.buffer, place_.byte_offset + used_, 0}; }
  ScratchTensor reserve(const ScratchTensor& tensor) {
    advance(tensor.size_bytes());
    return tensor;
  }
  void advance(uint64_t bytes) {
    used_ += (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  }

  bp_buffer_ref place_{};
  uint64_t address_ = 0, used_ = 0;
};

}  // namespace bp::vulkan
