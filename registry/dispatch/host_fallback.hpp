// Ops that run on another device, the host, with copies there and back.
#pragma once

#include "backplane/kernel.h"

namespace bp::core {

// The kernel that runs `op` on the first device of class host; nullptr where there is none. Static,
// and for every backend: launch() finds its target in bp_launch::next, which is the bp_target
// itself. Answers BP_UNSUPPORTED before it has submitted anything.
const bp_kernel* host_fallback(uint32_t op);

}  // namespace bp::core
