// Helpers of ops with a tensor of indices: tensors in the shape of a loop, and indices that are out
// of range. An index out of range is found when the work runs, and is then a failure of the stream.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/strided.hpp"

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

// The indices that name an element of an axis, and what becomes of another index. The attribute
// `bounds` of an op says it.
struct Bounds {
  Bounds() = default;
  // `undefined` clamps too: results may be anything, and clamped indices touch no foreign memory.
  Bounds(int64_t axis_extent, uint32_t bounds) : extent(axis_extent), clamps(bounds != 0) {}

  bool contains(int64_t index) const { return index >= 0 && index < extent; }
  // Returns the index that acts for `index`. It may be out of range only if the op fails then.
  int64_t acting(int64_t index) const {
    return clamps ? std::max<int64_t>(0, std::min(index, extent - 1)) : index;
  }

  int64_t extent = 0;
  bool clamps = false;
};

// A tensor of i64 or i32 of up to two axes.
struct IndexView {
  View view;
  bool is_i64 = false;

  int64_t at(int64_t i, int64_t j = 0) const {
    const int64_t offset = i * view.strides[0] + j * view.strides[1];
    return is_i64 ? reinterpret_cast<const int64_t*>(view.address)[offset]
                  : reinterpret_cast<const int32_t*>(view.address)[offset];
  }
};

// Writes an index to an element of i64 or i32.
inline void store_index(std::byte* to, bool is_i64, int64_t index) {
  if (is_i64) {
    *reinterpret_cast<int64_t*>(to) = index;
  } else {
    *reinterpret_cast<int32_t*>(to) = static_cast<int32_t>(index);
  }
}

// Where the argument `indices` of a launch lies.
struct IndexTensor {
  IndexTensor() = default;
  explicit IndexTensor(const bp_tensor& tensor)
      : first(data<const std::byte>(tensor)), is_i64(tensor.dtype == BP_I64) {}

  const std::byte* first = nullptr;
  bool is_i64 = false;
};

// One index that is out of range, if there is one. Threads share the object.
class WrongIndex {
 public:
  // Remembers the place of the index.
  void set(const void* place) { place_ = static_cast<const std::byte*>(place); }

  // Fails the work of `op` if an index of `argument` was not below `extent`. `exception` ends the
  // text.
  void check(const char* op, const IndexTensor& indices, int64_t extent, const char* exception = "",
             const char* argument = "indices") const {
    const std::byte* const place = place_;
    if (place == nullptr) return;
    const int64_t position = (place - indices.first) / (indices.is_i64 ? 8 : 4);
    const int64_t index = indices.is_i64 ? *reinterpret_cast<const int64_t*>(place)
                                         : *reinterpret_cast<const int32_t*>(place);
    throw StatusError(BP_DATA_FAILURE,
                      bad_index_text(op, argument, position, index, extent) + exception);
  }

 private:
  std::atomic<const std::byte*> place_ = nullptr;
};

}  // namespace bp::kernels
