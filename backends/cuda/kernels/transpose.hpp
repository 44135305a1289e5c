// Copies whose two sides are dense along different axes.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// The two axes of a part of a loop over (to, from) that form tiles.
struct TileAxes {
  int to = -1, from = -1;  // The axes along which `to` and `from` are dense; -1 if tiles have no
                           // use.
};
TileAxes tile_axes(const Loop& part);

// Copies a part that has tile axes; elements are `size_bytes` wide.
bp_status submit_transpose(Launch& launch, const Loop& part, TileAxes axes, int64_t size_bytes);

}  // namespace bp::cuda
