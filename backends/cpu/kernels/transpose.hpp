// Small transpositions in registers, of elements that keep their bits.
//
//   from   c0: r0 r1 r2 ...       to   r0: c0 c1 c2 ...
//          c1: r0 r1 r2 ...            r1: c0 c1 c2 ...
#pragma once

#include <cstddef>
#include <cstdint>

namespace bp::kernels {

// Writes rows x cols elements of 1, 2, 4 or 8 bytes. The lines of `from` are `from_stride` bytes
// apart, the rows of `to` have `to_pitch` elements. `to` and its rows begin at multiples of 32
// bytes.
void transpose_elements(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_pitch,
                        int64_t rows, int64_t cols, int64_t element_size_bytes);

}  // namespace bp::kernels
