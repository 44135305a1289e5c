// Copies whose two sides are dense along different axes.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// The axes of a part of a loop over (to, from) that tiles are made of.
struct TileAxes {
  int to = -1, from = -1;  // Along which each is dense; -1: tiles are of no use.
};
TileAxes tile_axes(const Loop& part);

// Copies a part that has tile axes; elements are `size_bytes` wide.
bp_status submit_transpose(Launch& launch, const Loop& part, TileAxes axes, int64_t size_bytes);

}  // namespace bp::cuda
