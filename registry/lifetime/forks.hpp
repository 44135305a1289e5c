// Cuts the backends off in the child of a fork. Threads of the parent, such as those of a driver,
// do not exist there, so a call that waits for them would wait forever.
#pragma once

#include "registry/state/state.hpp"

namespace bp::core {

// From now on a fork of this process cuts off the plugins of `registry` in the child: a use of
// their devices and objects fails with BP_DEVICE_LOST, and an end of an object does nothing and
// returns BP_OK. Their memory stays as it is until the child ends. The parent notices nothing.
// Returns BP_OUT_OF_MEMORY if there is none for the handlers of forks.
bp_status watch_forks(Registry& registry);

// It must be called before `registry` ends.
void forget_forks(Registry& registry);

}  // namespace bp::core
