// Calls that are launched many times: bp_prepared.
#pragma once

#include "registry/state.hpp"

namespace bp::core {

// Ends the plans of `target` before its backend shuts down; the handles stay with their owners.
void end_prepared(Target& target);

// To be called when `stream` ends: the next stream of its address is another one.
void forget_stream(Target& target, bp_stream* stream);

}  // namespace bp::core
