// Rows of blocks of a file, decoded in vectors: to f32, or into dot products with rows of f32.
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

// Columns of `block_count` blocks each, one after the other.
struct DotColumns {
  const std::byte* blocks;
  int64_t block_count, count;
};

// Where products go: that of a row and a column to address[row * row_stride + column].
struct DotResults {
  float* address;
  int64_t row_stride;
};

// What there is in vectors for a format; the functions are NULL if there is nothing.
struct BlockVectors {
  // Writes the products of each row with each column.
  void (*multiply)(const DotColumns& columns, const DotRows& rows, const DotResults& results);
  // Writes the elements of `block_count` blocks.
  void (*decode)(const std::byte* blocks, int64_t block_count, float* elements);
};

BlockVectors block_vectors(const BlockFormat& format);

}  // namespace bp::cpu
