// Runs calls whose inline operand has more bits than a 16-bit float in f32: the tensors are cast to
// f32, the op runs on them, and its result is cast back. This reads and writes 20 bytes per element
// of a unary call in place of 4, so it serves only calls that no kernel of the device takes.
#pragma once

#include "backplane/kernel.h"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// Returns the kernel that runs an op in f32, or NULL if the op has no operand. All backends share
// it: bp_launch::next points to the bp_target of the launch.
const bp_kernel* widening(const OpRow& row);

}  // namespace bp::core
