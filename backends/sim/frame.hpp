// Finds the memory that a launch reads and writes, from the tensors that backplane/ops.def lists.
#pragma once

#include <vector>

#include "backends/sim/stream.hpp"
#include "backplane/kernel.h"

namespace bp::sim {

// Returns the ranges of all tensors in the frame of `op`, inputs to read and outputs to write.
// Throws StatusError if the buffer of a tensor is not of the stream's device, if an element lies
// outside the buffer, or if the heap does not allow the offset of the tensor.
std::vector<Use> uses_of_frame(uint32_t op, const void* args, const Stream& stream);

// Returns the same for an op that was described at run time.
std::vector<Use> uses_of_frame(const bp_op_desc& op, const void* args, const Stream& stream);

// Adds a range of scratch memory or packed arguments. It adds nothing if the range has no buffer.
void add_use(std::vector<Use>& uses, const bp_buffer_ref& range, const Stream& stream,
             const char* what);

}  // namespace bp::sim
