// The layouts of test tensors: the strides of a layout, and the elements that they span.
#pragma once

#include <cstdint>

#include "conformance/reference/array.hpp"

namespace bp::conformance {

enum class Layout {
  kDense,
  kTransposed,      // The last two axes change places.
  kPermuted,        // All axes in reverse order.
  kSliced,          // Rows with a gap behind each.
  kStepped,         // Every second element of each row.
  kNegative,        // The last axis backwards.
  kReversed,        // Every axis backwards.
  kBroadcastFirst,  // Stride 0 on the first axis.
  kBroadcastLast,   // Stride 0 on the last axis.
  kBroadcastAll,    // Stride 0 on every axis.
  kOffset,          // Dense, at the smallest byte offset that the heap allows.
};

const char* layout_text(Layout layout);
bool is_broadcast(Layout layout);

struct Placement {
  Shape strides;        // The strides in elements.
  int64_t lowest = 0;   // The lowest element, relative to element (0, ..., 0).
  int64_t highest = 0;  // The highest element; below `lowest` if the tensor is empty.

  int64_t span() const { return highest - lowest + 1; }
};

// Places a tensor. `row_gap` elements lie behind each row of kSliced.
Placement place(Layout layout, const Shape& shape, int64_t row_gap = 3);

// Places a tensor like kSliced, with rows that lie `row_stride` elements apart.
Placement place_rows(const Shape& shape, int64_t row_stride);

// Returns the place, relative to element (0, ..., 0), of the element with row-major number `index`.
int64_t element_offset(const Placement& placement, const Shape& shape, int64_t index);

// Returns the row-major number of the first element that shares its memory with element `index`. It
// is another element if strides are 0.
int64_t stored_index(const Placement& placement, const Shape& shape, int64_t index);

}  // namespace bp::conformance
