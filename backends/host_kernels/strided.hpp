// Tensors as tasks hold them, and copies between layouts of one shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/shell/shape.hpp"
#include "backplane/tensor.h"

namespace bp::kernels {

// A copy of the content of a bp_tensor, whose pointers are valid only during the launch. The
// element at index (i, j, ...) lies i * strides[0] + j * strides[1] + ... elements behind the
// address.
struct View {
  std::byte* address = nullptr;
  uint32_t ndim = 0;
  int64_t shape[BP_MAX_RANK] = {};
  int64_t strides[BP_MAX_RANK] = {};
};

View view_of(const bp_tensor& tensor);

// Returns a view of the same shape at `address`, in row-major order without gaps.
View dense_view(const View& like, std::byte* address);

// shape.hpp has the same functions for tensors.
using bp::element_count;
using bp::is_contiguous;
inline int64_t element_count(const View& view) { return element_count(view.ndim, view.shape); }
inline bool is_contiguous(const View& view) {
  return is_contiguous(view.ndim, view.shape, view.strides);
}

// Returns the distance of a row from the first one, in elements. A row lies along the last axis,
// of which there is one, and rows are counted in row-major order.
inline int64_t row_offset(const View& view, int64_t row) {
  int64_t offset = 0;
  for (uint32_t axis = view.ndim - 1; axis-- > 0; row /= view.shape[axis]) {
    offset += row % view.shape[axis] * view.strides[axis];
  }
  return offset;
}

// Copies every element, of 1, 2, 4 or 8 bytes; `to` has the same shape.
void copy_elements(const View& from, const View& to, int64_t element_size_bytes, int thread_count);

// Copies every element and converts its dtype, as the op copy does; it is in movement.cpp.
void convert_elements(const View& from, bp_dtype from_dtype, const View& to, bp_dtype to_dtype,
                      int thread_count);

// A tensor that a method does not take as it is, and its row-major copy in the workspace.
struct DenseCopy {
  DenseCopy() = default;  // No copy is needed.
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
  View dense;           // It has no address until the launch gives it one.
  uint64_t offset = 0;  // The place of the copy in the workspace.
};

// Reserves a buffer in the workspace, behind the first `end` bytes. Returns where the buffer
// begins, and sets `end` behind it.
uint64_t reserve_bytes(uint64_t size_bytes, uint64_t& end);

}  // namespace bp::kernels
