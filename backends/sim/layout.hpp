// The layouts of the simulated device, and the kernels that take them.
#pragma once

#include <cstdint>

#include "backends/sim/stream.hpp"
#include "backends/sim/tiles.hpp"
#include "backplane/shell/layout.hpp"

namespace bp::sim {

// The form of `tensor` in tiles.
LayoutForm tiled_form(const bp_tensor& tensor);

// Bit i: tensor argument i of the op may be in tiles, and is preferred so.
uint32_t tiled_arguments(uint32_t op);

// How a task finds the elements of `tensor`, at `range` of its buffer.
Elements elements_of(const bp_tensor& tensor, const Use& range);
Extents extents_of(const bp_tensor& tensor);

// The bytes that the elements of `tensor` span, padding included, for the argument `what` of the
// entry `call`. Throws StatusError unless they lie in a buffer of the stream's device.
Use use_of_tensor(const bp_tensor& tensor, Access access, const Stream& stream, const char* call,
                  const char* what);

// Puts the functions that take tiles in front of those of `kernel`.
void put_tiles(bp_kernel& kernel);

}  // namespace bp::sim
