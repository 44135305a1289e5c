// Tiles cut the last two axes of a tensor into squares. The elements of a square lie dense, row by
// row. Squares are counted along columns, then along rows, then along the batch. They are dealt to
// the banks in turn, and the parts of the banks follow each other:
//
//   square number      0 1 2 3 4 5 6      7 squares, 4 banks
//   bank 0 | bank 1 | bank 2 | bank 3     0 4 | 1 5 | 2 6 | 3 -
//
// Every bank has room for as many squares as the first one. The edges of squares and the places
// without a square are padding: it has the form's pattern, and nothing reads it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/tensor.h"

namespace bp::sim {

struct TileForm {
  int64_t extent;  // Of a square, along each of its two axes.
  int64_t banks;
  uint8_t padding;  // The pattern of each byte.
};

// What some kernels prefer, and what a device takes that takes nothing else (option layouts=only).
// The padding of the latter is NaN in every float, so that a kernel that used it would show.
inline constexpr TileForm kPreferredTiles{16, 1, 0}, kOnlyTiles{32, 4, 0xFF};

struct Tiles {
  const TileForm& form;
  int64_t batches = 1, rows = 1, cols = 1;

  // Returns the tiles of a tensor of any rank. A tensor without a row axis has one row. Throws
  // TooManyElements.
  static Tiles of(const TileForm& form, uint32_t ndim, const int64_t* shape);

  int64_t row_tiles() const { return tiles_of(rows); }
  int64_t col_tiles() const { return tiles_of(cols); }

  // Returns how many squares each bank has room for. Throws TooManyElements.
  int64_t tiles_per_bank() const;

  // Returns the bytes of all places for elements, padding included. Throws TooManyElements.
  int64_t size_bytes(int64_t item_bits) const;

  // Returns the place of an element, counted in elements. `per_bank` is tiles_per_bank().
  int64_t place(int64_t per_bank, int64_t batch, int64_t row, int64_t col) const {
    const int64_t extent = form.extent;
    const int64_t tile = (batch * row_tiles() + row / extent) * col_tiles() + col / extent;
    const int64_t slot = tile % form.banks * per_bank + tile / form.banks;
    return (slot * extent + row % extent) * extent + col % extent;
  }

 private:
  int64_t tiles_of(int64_t count) const { return count / form.extent + (count % form.extent != 0); }
};

// Where a task finds the elements of a tensor: the content of a bp_tensor, and an address.
struct Elements {
  std::byte* address = nullptr;
  const TileForm* tiles = nullptr;  // NULL: they lie by strides.
  int64_t strides[BP_MAX_RANK] = {};
};

// A shape, and the bits of one element. Elements of less than a byte are packed from the low bits
// of a byte up.
struct Extents {
  uint32_t ndim = 0;
  int64_t shape[BP_MAX_RANK] = {};
  int64_t item_bits = 0;
};

// Copies all elements. The padding of a tiled `dst` gets its pattern.
void copy_elements(const Extents& extents, const Elements& dst, const Elements& src);

}  // namespace bp::sim
