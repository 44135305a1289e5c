// The memory that a launch touches: its tensors, as backplane/ops.def lists them.
#pragma once

#include <vector>

#include "backends/sim/stream.hpp"
#include "backplane/kernel.h"

namespace bp::sim {

// The ranges of all tensors in the frame of `op`: of inputs to read, of outputs to write. Throws
// StatusError for a tensor whose buffer is not one of the stream's device, whose elements leave it,
// or whose offset is no multiple of what the heap allows.
std::vector<Use> uses_of_frame(uint32_t op, const void* args, const Stream& stream);

// A range that is scratch memory or packed arguments; nothing for one without a buffer.
void add_use(std::vector<Use>& uses, const bp_buffer_ref& range, const Stream& stream,
             const char* what);

}  // namespace bp::sim
