// Tensors as tasks hold them, and copies between layouts of one shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/tensor.h"

namespace bp::kernels {

// The element at index (i, j, ...) lies i * strides[0] + j * strides[1] + ... elements behind the
// address. A copy of what a bp_tensor says, for its pointers end with the launch.
struct View {
  std::byte* address = nullptr;
  uint32_t ndim = 0;
  int64_t shape[BP_MAX_RANK] = {};
  int64_t strides[BP_MAX_RANK] = {};
};

View view_of(const bp_tensor& tensor);

// The same shape at `address` in row-major order without gaps.
View dense_view(const View& like, std::byte* address);

int64_t element_count(const View& view);

// Copies every element, of 1, 2, 4 or 8 bytes; `to` has the same shape.
void copy_elements(const View& from, const View& to, int64_t element_size_bytes, int thread_count);

}  // namespace bp::kernels
