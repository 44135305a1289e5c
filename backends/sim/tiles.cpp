#include "backends/sim/tiles.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "backplane/shell/shape.hpp"

namespace bp::sim {
namespace {

// Where the elements of one side lie, for a walk along the last axis.
class Side {
 public:
  Side(const Extents& extents, const Elements& elements)
      : extents_(extents),
        elements_(elements),
        tiles_(Tiles::of(form_of(elements), extents.ndim, extents.shape)),
        per_bank_(elements.tiles == nullptr ? 0 : tiles_.tiles_per_bank()) {}

  // Goes to the line at `index`, whose last entry is 0.
  void go_to(const int64_t* index) {
    batch_ = first_ = 0;
    const uint32_t ndim = extents_.ndim;
    for (uint32_t axis = 0; axis + 1 < ndim; ++axis)
      first_ += index[axis] * elements_.strides[axis];
    for (uint32_t axis = 0; axis + 2 < ndim; ++axis) {
      batch_ = batch_ * extents_.shape[axis] + index[axis];
    }
    row_ = ndim < 2 ? 0 : index[ndim - 2];
  }

  // Returns the place of an element of the line, counted in elements.
  int64_t place(int64_t col) const {
    if (elements_.tiles != nullptr) return tiles_.place(per_bank_, batch_, row_, col);
    return extents_.ndim == 0 ? 0 : first_ + col * step();
  }

  // Returns where the elements end that follow the one at `col` in even steps.
  int64_t run_end(int64_t col) const {
    if (elements_.tiles == nullptr) return tiles_.cols;
    const int64_t extent = tiles_.form.extent;
    return std::min(tiles_.cols, (col / extent + 1) * extent);
  }
  int64_t step() const {
    return elements_.tiles != nullptr || extents_.ndim == 0 ? 1
                                                            : elements_.strides[extents_.ndim - 1];
  }

 private:
  static const TileForm& form_of(const Elements& elements) {
    return elements.tiles == nullptr ? kPreferredTiles : *elements.tiles;
  }

  const Extents& extents_;
  const Elements& elements_;
  const Tiles tiles_;
  const int64_t per_bank_;
  int64_t batch_ = 0, row_ = 0, first_ = 0;
};

// Elements of one line that lie in even steps on both sides.
struct Run {
  int64_t dst, src, count, dst_step, src_step;
};

void copy_bytes(std::byte* dst, const std::byte* src, const Run& run, int64_t item) {
  if (run.dst_step == 1 && run.src_step == 1) {
    std::memcpy(dst + run.dst * item, src + run.src * item, static_cast<size_t>(run.count * item));
    return;
  }
  for (int64_t i = 0; i < run.count; ++i) {
    std::memcpy(dst + (run.dst + i * run.dst_step) * item,
                src + (run.src + i * run.src_step) * item, static_cast<size_t>(item));
  }
}

void copy_bits(std::byte* dst, const std::byte* src, const Run& run, int64_t item_bits) {
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t to = (run.dst + i * run.dst_step) * item_bits,
                  from = (run.src + i * run.src_step) * item_bits;
    for (int64_t bit = 0; bit < item_bits; ++bit) {
      // A place may be negative, so shifts and masks divide it by 8, which round down.
      const auto mask = std::byte{1} << ((to + bit) & 7);
      const auto is_set =
          (src[(from + bit) >> 3] >> ((from + bit) & 7) & std::byte{1}) != std::byte{};
      std::byte& byte = dst[(to + bit) >> 3];
      byte = is_set ? byte | mask : byte & ~mask;
    }
  }
}

// Moves `index` to the next line. Returns false after the last one.
bool advance(const Extents& extents, int64_t* index) {
  for (uint32_t axis = extents.ndim < 1 ? 0 : extents.ndim - 1; axis-- > 0;) {
    if (++index[axis] < extents.shape[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

}  // namespace

Tiles Tiles::of(const TileForm& form, uint32_t ndim, const int64_t* shape) {
  Tiles tiles{form};
  // Without elements, the product of the batch axes alone may be too large for 64 bits.
  const bool is_empty = element_count(ndim, shape) == 0;
  for (uint32_t axis = 0; axis + 2 < ndim; ++axis) tiles.batches *= is_empty ? 0 : shape[axis];
  if (ndim >= 2) tiles.rows = shape[ndim - 2];
  if (ndim >= 1) tiles.cols = shape[ndim - 1];
  return tiles;
}

int64_t Tiles::tiles_per_bank() const {
  const int64_t counts[] = {batches, row_tiles(), col_tiles()};
  const int64_t count = dense_size_bytes(std::size(counts), counts, 1);
  return count / form.banks + (count % form.banks != 0);
}

int64_t Tiles::size_bytes(int64_t item_bits) const {
  const int64_t slots[] = {form.banks, tiles_per_bank()};
  return dense_size_bytes(std::size(slots), slots, form.extent * form.extent * item_bits / 8);
}

void copy_elements(const Extents& extents, const Elements& dst, const Elements& src) {
  if (element_count(extents.ndim, extents.shape) == 0) return;
  if (dst.tiles != nullptr) {
    const Tiles tiles = Tiles::of(*dst.tiles, extents.ndim, extents.shape);
    std::memset(dst.address, dst.tiles->padding,
                static_cast<size_t>(tiles.size_bytes(extents.item_bits)));
  }
  Side to(extents, dst), from(extents, src);
  const int64_t cols = extents.ndim == 0 ? 1 : extents.shape[extents.ndim - 1];
  int64_t index[BP_MAX_RANK] = {};
  do {
    to.go_to(index);
    from.go_to(index);
    for (int64_t col = 0, end = 0; col < cols; col = end) {
      end = std::min(to.run_end(col), from.run_end(col));
      const Run run{to.place(col), from.place(col), end - col, to.step(), from.step()};
      if (extents.item_bits % 8 == 0) {
        copy_bytes(dst.address, src.address, run, extents.item_bits / 8);
      } else {
        copy_bits(dst.address, src.address, run, extents.item_bits);
      }
    }
  } while (advance(extents, index));
}

}  // namespace bp::sim
