// The layouts of the simulated device, and the kernels that take them.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/sim/stream.hpp"
#include "backends/sim/tiles.hpp"
#include "backplane/shell/block_layout.hpp"
#include "backplane/shell/layout.hpp"

namespace bp::sim {

struct Instance;

// Returns how the tiles of an instance are cut.
const TileForm& tile_form(const Instance& instance);

// Returns whether the kernels of the instance take tiles alone.
bool takes_tiles_alone(const Instance& instance);

// Return bit sets. If bit i is set, tensor argument i of the op may be in tiles, and tiles are
// preferred; or it may be in the blocks of files. A list is one argument.
uint32_t tiled_arguments(const Instance& instance, uint32_t op);
uint32_t block_arguments(const Instance& instance, uint32_t op);

Extents extents_of(const bp_tensor& tensor);

// Returns the bytes that the elements of `tensor` span, padding included. The tensor is the
// argument `what` of the entry `call`. Throws StatusError unless the bytes lie in a buffer of the
// stream's device.
Use use_of_tensor(const bp_tensor& tensor, Access access, const Stream& stream, const char* call,
                  const char* what);

// One side of a conversion. A side in the blocks of a file has a format.
struct Side {
  Elements elements;
  const BlockFormat* format = nullptr;
  uint64_t size_bytes = 0;
};

// Returns where a task finds the elements of `tensor`, which lie in `range` of its buffer. `form`
// is that of its layout, if it has one.
Side side_of(const Instance& instance, const bp_tensor& tensor,
             const std::optional<LayoutForm>& form, const Use& range);

// Copies the elements of `src` to `dst`. Blocks are decoded to dense rows, and encoded from them.
void run_conversion(const Extents& extents, const Side& dst, const Side& src);

// Replaces the functions of a kernel of `instance` by functions that also take tiles and blocks, or
// that take tiles alone. The kernel claims these layouts.
void put_tiles(const Instance& instance, bp_kernel& kernel);

// Returns a kernel of `copy` that converts: between strides and tiles, and from blocks. It is for
// programs, whose compiler copies a value where a kernel does not take it as it lies.
bp_kernel copy_between_layouts(const Instance& instance);

}  // namespace bp::sim
