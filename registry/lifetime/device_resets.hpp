// Puts a function of the host in front of a backend's reset(), because a reset ends all handles of
// a device. The host keeps such handles: cached memory, streams of host fallbacks, plans, compiled
// programs. It must forget them, or it would give a dead handle to the backend.
#pragma once

namespace bp::core {

struct Target;

// Moves target.own_tables.devices to target.next_devices, and puts functions of the host in its
// place.
void watch_resets(Target& target);

}  // namespace bp::core
