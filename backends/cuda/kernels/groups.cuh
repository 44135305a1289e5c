// Groups of rows that offsets on the device cut: sequences of tokens, and tokens of experts. The
// device alone knows how many rows a group has. So a grid has enough tiles for every division of
// the rows, and plan_tiles() writes first which tiles are those of a group.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// A tensor of i64 or i32 of up to two axes.
struct IndexView {
  const std::byte* data = nullptr;
  int64_t strides[2] = {};
  bool is_i64 = false;

  __device__ const std::byte* place(int64_t i, int64_t j = 0) const {
    return data + (i * strides[0] + j * strides[1]) * (is_i64 ? 8 : 4);
  }
  __device__ int64_t at(int64_t i, int64_t j = 0) const {
    const std::byte* const from = place(i, j);
    return is_i64 ? *reinterpret_cast<const int64_t*>(from)
                  : *reinterpret_cast<const int32_t*>(from);
  }
};

struct Groups {
  IndexView offsets;
  int64_t rows = 0;
  uint32_t count = 0;
  int64_t lines = 1;                // Of a row.
  uint32_t side = 1;                // The lines of a tile.
  uint32_t* tile_starts = nullptr;  // The first tile of each group, and the number of all.

  // Returns where a group begins, or where the one before it ends.
  __device__ int64_t begin(uint32_t group) const {
    const int64_t offset = offsets.at(group);
    return offset < 0 ? 0 : offset < rows ? offset : rows;
  }
  __device__ int64_t size(uint32_t group) const {
    const int64_t size = begin(group + 1) - begin(group);
    return size < 0 ? 0 : size;
  }
  __device__ uint32_t tiles(uint32_t group) const {
    return static_cast<uint32_t>((size(group) * lines + side - 1) / side);
  }
  __device__ bool has_tile(uint32_t tile) const { return tile < tile_starts[count]; }
  // Returns the group of a tile.
  __device__ uint32_t group_of(uint32_t tile) const {
    uint32_t low = 0, high = count;  // tile_starts[low] <= tile < tile_starts[high].
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (tile_starts[middle] <= tile ? low : high) = middle;
    }
    return low;
  }
  // Returns whether a row is of a group, if the offsets do not descend.
  __device__ bool has_row(int64_t row) const { return row >= begin(0) && row < begin(count); }
};

// ---- On the host --------------------------------------------------------------------------------

inline IndexView index_view(const bp_tensor& tensor) {
  IndexView view{data<const std::byte>(tensor), {}, is_i64_index(tensor.dtype)};
  std::copy_n(tensor.strides, tensor.ndim, view.strides);
  return view;
}

// Returns the memory of tile_starts.
inline uint64_t tile_starts_bytes(int64_t groups) {
  return (static_cast<uint64_t>(groups) + 1) * sizeof(uint32_t);
}

// Returns the most tiles that all groups have.
inline int64_t most_tiles(const Groups& groups) {
  return groups.rows * groups.lines / groups.side + groups.count;
}

// Writes groups.tile_starts.
bp_status plan_tiles(const Groups& groups, Launch& launch);

}  // namespace bp::cuda
