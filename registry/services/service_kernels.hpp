// The kernels that the host itself has for ops: decompositions, copies and fallbacks. All backends
// share them: bp_launch::next points to the bp_target of the launch.
#pragma once

#include <vector>

#include "backplane/kernel.h"

namespace bp::services {

using ServiceLaunch = decltype(bp_kernel::launch);

constexpr bp_kernel_flags kServiceFlags =
    BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR | BP_KERNEL_DETERMINISTIC;

// Returns a kernel of `op` that takes every tensor. `launch` finds `state` in the kernel.
bp_kernel make_service(const char* name, uint32_t op, uint32_t args_size_bytes, const void* state,
                       ServiceLaunch launch, bp_kernel_flags flags = kServiceFlags);

// Returns such a kernel for each op, in the order of op_rows(). The state is the row of the op.
std::vector<bp_kernel> make_services(const char* name, ServiceLaunch launch,
                                     bp_kernel_flags flags = kServiceFlags);

}  // namespace bp::services
