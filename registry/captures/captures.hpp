// Implements backplane/capture.h: captures whose memory the host keeps.
#pragma once

#include "registry/state/state.hpp"

namespace bp::core {

// Abandons the open captures of `target`, whose backend ends. The owners keep their handles.
void abandon_captures(Target& target);

// Ends the captured graphs of `target`, whose work has ended, before its backend shuts down. The
// owners of the handles keep them.
void end_captured_graphs(Target& target);

// Makes calls for the captures and graphs of `target` fail. It must be called after a reset of the
// device, which has ended them.
void lose_captures(Target& target);

// Cuts the captures and captured graphs of `target` off from its backend, which nobody calls any
// more. The caller holds captures_mutex, or no other thread runs.
void leave_captures(Target& target);

}  // namespace bp::core
