// Tensors as tasks hold them, and copies between layouts of one shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/shell/shape.hpp"
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

// As for tensors (shape.hpp).
using bp::element_count;
using bp::is_contiguous;
int64_t element_count(const View& view);
bool is_contiguous(const View& view);

// Copies every element, of 1, 2, 4 or 8 bytes; `to` has the same shape.
void copy_elements(const View& from, const View& to, int64_t element_size_bytes, int thread_count);

// The same between dtypes, as copy does it; in movement.cpp.
void convert_elements(const View& from, bp_dtype from_dtype, const View& to, bp_dtype to_dtype,
                      int thread_count);

// A tensor that a method does not take as it is, and its row-major copy in the workspace.
struct DenseCopy {
  DenseCopy() = default;  // None is needed.
  DenseCopy(const View& its_view, bp_dtype its_dtype, bp_dtype its_dense_dtype);

  uint64_t size_bytes() const;
  void fetch(int thread_count) const {
    convert_elements(view, dtype, dense, dense_dtype, thread_count);
  }
  void store(int thread_count) const {
    convert_elements(dense, dense_dtype, view, dtype, thread_count);
  }

  bool is_needed = false;
  bp_dtype dtype = 0, dense_dtype = 0;
  View view;
  View dense;           // Without an address, until the launch gives it one.
  uint64_t offset = 0;  // Of the copy in the workspace.
};

// Puts a buffer of the workspace behind what takes `end` bytes, and returns where it begins.
uint64_t reserve_bytes(uint64_t size_bytes, uint64_t& end);

}  // namespace bp::kernels
