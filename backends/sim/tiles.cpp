#include "backends/sim/tiles.hpp"

#include <cstring>
#include <iterator>

#include "backplane/shell/shape.hpp"

namespace bp::sim {
namespace {

// Returns the place of the element at `index`, counted in elements from the address.
int64_t place_of(const Extents& extents, const Tiles& tiles, const Elements& elements,
                 const int64_t* index) {
  int64_t place = 0;
  if (!elements.is_tiled) {
    for (uint32_t axis = 0; axis < extents.ndim; ++axis) {
      place += index[axis] * elements.strides[axis];
    }
    return place;
  }
  int64_t batch = 0;
  for (uint32_t axis = 0; axis + 2 < extents.ndim; ++axis) {
    batch = batch * extents.shape[axis] + index[axis];
  }
  const int64_t row = extents.ndim < 2 ? 0 : index[extents.ndim - 2];
  const int64_t col = extents.ndim < 1 ? 0 : index[extents.ndim - 1];
  return tiles.place(batch, row, col);
}

// Moves `index` to the next element in row-major order. Returns false after the last element.
bool advance(const Extents& extents, int64_t* index) {
  for (uint32_t axis = extents.ndim; axis-- > 0;) {
    if (++index[axis] < extents.shape[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

}  // namespace

Tiles Tiles::of(uint32_t ndim, const int64_t* shape) {
  Tiles tiles;
  // Without elements, the product of the batch axes alone may be too large for 64 bits.
  const bool is_empty = element_count(ndim, shape) == 0;
  for (uint32_t axis = 0; axis + 2 < ndim; ++axis) tiles.batches *= is_empty ? 0 : shape[axis];
  if (ndim >= 2) tiles.rows = shape[ndim - 2];
  if (ndim >= 1) tiles.cols = shape[ndim - 1];
  return tiles;
}

int64_t Tiles::size_bytes(int64_t item_bytes) const {
  const int64_t places[] = {batches, row_tiles(), col_tiles(), kTileExtent, kTileExtent};
  return dense_size_bytes(std::size(places), places, item_bytes);
}

void copy_elements(const Extents& extents, const Elements& dst, const Elements& src) {
  if (element_count(extents.ndim, extents.shape) == 0) return;
  const Tiles tiles = Tiles::of(extents.ndim, extents.shape);
  const auto item = static_cast<size_t>(extents.item_bytes);
  if (dst.is_tiled) {
    std::memset(dst.address, 0, static_cast<size_t>(tiles.size_bytes(extents.item_bytes)));
  }
  int64_t index[BP_MAX_RANK] = {};
  do {
    std::memcpy(dst.address + place_of(extents, tiles, dst, index) * extents.item_bytes,
                src.address + place_of(extents, tiles, src, index) * extents.item_bytes, item);
  } while (advance(extents, index));
}

}  // namespace bp::sim
