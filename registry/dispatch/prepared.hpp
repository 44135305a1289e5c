// Implements bp_prepared: calls that are launched many times.
#pragma once

#include "registry/state/state.hpp"

namespace bp::core {

// Ends the plans of `target` before its backend shuts down. The handles stay with their owners.
void end_prepared(Target& target);

// Must be called when `stream` ends, because the next stream at its address is another one.
void forget_stream(Target& target, bp_stream* stream);

}  // namespace bp::core
