// Dot products of rows of f32 with a row of blocks of a file, in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/shell/block_layout.hpp"

namespace bp::cpu {

constexpr int64_t kMostDotRows = 4;

// Rows of f32, `row_stride` elements apart.
struct DotRows {
  const float* address;
  int64_t row_stride, count;  // At most kMostDotRows.
};

// Writes the products of the rows with `block_count` blocks.
using DotBlocks = void(const std::byte* blocks, int64_t block_count, const DotRows& rows,
                       float* results);

// Returns the function for a format, or NULL if there are no vectors for it.
DotBlocks* dot_of(const BlockFormat& format);

}  // namespace bp::cpu
