// The layouts of the simulated device, and the kernels that take them.
#pragma once

#include <cstdint>

#include "backends/sim/stream.hpp"
#include "backends/sim/tiles.hpp"
#include "backplane/shell/layout.hpp"

namespace bp::sim {

// Returns a bit set. If bit i is set, tensor argument i of the op may be in tiles, and tiles are
// preferred.
uint32_t tiled_arguments(uint32_t op);

// Returns where a task finds the elements of `tensor`, which lie in `range` of its buffer.
Elements elements_of(const bp_tensor& tensor, const Use& range);
Extents extents_of(const bp_tensor& tensor);

// Returns the bytes that the elements of `tensor` span, padding included. The tensor is the
// argument `what` of the entry `call`. Throws StatusError unless the bytes lie in a buffer of the
// stream's device.
Use use_of_tensor(const bp_tensor& tensor, Access access, const Stream& stream, const char* call,
                  const char* what);

// Replaces the functions of `kernel` by functions that also take tiles.
void put_tiles(bp_kernel& kernel);

}  // namespace bp::sim
