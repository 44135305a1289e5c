// Tensors (n, c, spatial) of 1 to 3 spatial axes in the records of shaders (grid.glsl).
#pragma once

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

// Writes the axes of a tensor as n, c and three spatial ones. If the tensor has fewer, the first
// spatial ones have extent 1.
inline void put_axes(const bp_tensor& t, uint32_t* extents, int64_t* strides) {
  const uint32_t spatial = t.ndim - 2, missing = 3 - spatial;
  const int64_t item = dtype_size_bytes(t.dtype);
  for (uint32_t i = 0; i < 5; ++i) {
    const bool is_missing = i >= 2 && i < 2 + missing;
    const uint32_t axis = i < 2 ? i : i - missing;
    if (extents != nullptr) extents[i] = is_missing ? 1 : static_cast<uint32_t>(t.shape[axis]);
    strides[i] = is_missing ? 0 : t.strides[axis] * item;
  }
}

}  // namespace bp::vulkan
