// Small transpositions in registers, which keep the bits of elements.
//
//   from   c0: r0 r1 r2 ...       to   r0: c0 c1 c2 ...
//          c1: r0 r1 r2 ...            r1: c0 c1 c2 ...
#pragma once

#include <cstddef>
#include <cstdint>

namespace bp::kernels {

// `to` and its rows begin at multiples of 32 bytes.
struct Transposition {
  const std::byte* from;
  int64_t from_stride;  // The bytes from line to line.
  std::byte* to;
  int64_t to_pitch;  // The elements from row to row.
  int64_t rows, cols;
};

// Writes rows x cols elements of 1, 2, 4 or 8 bytes.
void transpose_elements(const Transposition& t, int64_t element_size_bytes);

}  // namespace bp::kernels
