// Tensors of one rank as lines along an axis: how an op finds the same line of each of them. Their
// extents differ along the axis alone. A tensor without axes is a line of one element.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {

// The axes that count the lines.
struct LineSpace {
  LineSpace() = default;
  LineSpace(const bp_tensor& like, size_t axis) {
    for (size_t i = 0; i < like.ndim; ++i) {
      if (i == axis) continue;
      extents[axes++] = like.shape[i];
      count *= like.shape[i];
    }
  }

  uint32_t axes = 0;
  std::array<int64_t, BP_MAX_RANK> extents{};
  int64_t count = 1;
};

// One tensor: where its lines begin, and its stride along them, in bytes.
struct LineOperand {
  LineOperand() = default;
  // An absent tensor has no address.
  LineOperand(const bp_tensor* tensor, size_t axis) {
    if (tensor == nullptr) return;
    const int64_t size_bytes = dtype_size_bytes(tensor->dtype);
    address = data<std::byte>(*tensor);
    stride = axis_stride(*tensor, axis) * size_bytes;
    size_t next = 0;
    for (size_t i = 0; i < tensor->ndim; ++i) {
      if (i != axis) line_strides[next++] = tensor->strides[i] * size_bytes;
    }
  }

  // Returns the address of the line with this number, or NULL if the tensor is absent.
  std::byte* line(const LineSpace& space, int64_t number) const {
    if (address == nullptr) return nullptr;
    std::byte* at = address;
    for (uint32_t axis = space.axes; axis-- > 0; number /= space.extents[axis]) {
      at += number % space.extents[axis] * line_strides[axis];
    }
    return at;
  }
  // Returns the distance of neighbouring lines, of which the last axis of `space` has several.
  int64_t line_stride(const LineSpace& space) const {
    return space.axes == 0 ? 0 : line_strides[space.axes - 1];
  }

  std::byte* address = nullptr;
  int64_t stride = 0;
  std::array<int64_t, BP_MAX_RANK> line_strides{};
};

}  // namespace bp::kernels
