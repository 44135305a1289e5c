// What stands behind the backends' own kernels and allocators: the seam between the registry's core
// and its services.
#pragma once

#include "backplane/host.h"
#include "registry/services/caching_allocator.hpp"

namespace bp::services {

// The kernel that runs `op` as other ops, or as a copy on the host; nullptr where there is none.
// Static, and for every backend: launch() finds its target in bp_launch::next, which is the
// bp_target itself. Answers BP_UNSUPPORTED before it has submitted anything.
const bp_kernel* decomposition(uint32_t op);
const bp_kernel* host_fallback(uint32_t op);

}  // namespace bp::services
