// Kernels that run an op on the host device, and copy its tensors there and back.
#pragma once

#include "backplane/kernel.h"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// Returns the kernel that runs an op on the first device of class host.
// All backends share one kernel for each op: bp_launch::next points to the bp_target of the launch.
// If the kernel returns BP_UNSUPPORTED because there is no other host device, it has submitted
// nothing.
const bp_kernel* host_fallback(const OpRow& row);

}  // namespace bp::core
