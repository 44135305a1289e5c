// Implements bp_prepared: calls that are launched many times.
#pragma once

#include "registry/state/state.hpp"

namespace bp::core {

// Ends the plans of `target` before its backend shuts down. The owners of the handles keep them.
void end_prepared(Target& target);

// Makes launches of the prepared calls of `target` fail. It must be called after a reset of the
// device, which has ended their plans and their packed copies.
void lose_prepared(Target& target);

// Cuts the prepared calls of `target` off from its backend, which nobody calls any more. The caller
// holds prepared_mutex, or no other thread runs.
void leave_prepared(Target& target);

// Forgets `stream`. It must be called when the stream ends, because another stream may get its
// address.
void forget_stream(Target& target, bp_stream* stream);

}  // namespace bp::core
