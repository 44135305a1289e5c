// Launches that no program has as they are, as the host's own kernels write them: moves as integers
// of another dtype, small integers in i32.
#pragma once

#include "registry/services/captures.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

// Records the launches that a kernel of the host makes of a call, in `recorder`. Returns
// BP_UNSUPPORTED if none serves it, and leaves what was recorded of it then.
bp_status record_other_form(Target& target, services::LaunchRecorder& recorder, const OpRow& row,
                            bp_launch_flags flags, const void* frame);

}  // namespace bp::core
