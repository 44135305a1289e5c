// Tiles cut the last two axes of a tensor into squares of 16 by 16. Each square lies dense, row by
// row. Squares follow each other along rows, then along columns, then along the batch. Zeros fill
// the squares at the edges.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/tensor.h"

namespace bp::sim {

constexpr int64_t kTileExtent = 16;

struct Tiles {
  int64_t batches = 1, rows = 1, cols = 1;

  // Returns the tiles of a tensor of any rank. A tensor without a row axis has one row. Throws
  // TooManyElements.
  static Tiles of(uint32_t ndim, const int64_t* shape);

  int64_t row_tiles() const { return rows / kTileExtent + (rows % kTileExtent != 0); }
  int64_t col_tiles() const { return cols / kTileExtent + (cols % kTileExtent != 0); }

  // Returns the bytes of all places for elements, padding included. Throws TooManyElements.
  int64_t size_bytes(int64_t item_bytes) const;

  int64_t place(int64_t batch, int64_t row, int64_t col) const {
    const int64_t tile =
        (batch * row_tiles() + row / kTileExtent) * col_tiles() + col / kTileExtent;
    return (tile * kTileExtent + row % kTileExtent) * kTileExtent + col % kTileExtent;
  }
};

// Where a task finds the elements of a tensor: the content of a bp_tensor, and an address.
struct Elements {
  std::byte* address = nullptr;
  bool is_tiled = false;
  int64_t strides[BP_MAX_RANK] = {};
};

// A shape, and the bytes of one element.
struct Extents {
  uint32_t ndim = 0;
  int64_t shape[BP_MAX_RANK] = {};
  int64_t item_bytes = 0;
};

// Copies all elements. The padding of a tiled `dst` becomes zeros.
void copy_elements(const Extents& extents, const Elements& dst, const Elements& src);

}  // namespace bp::sim
