// Puts a function of the host in front of a backend's reset(), because a reset loses the handles of
// a device, except its default stream. The host keeps such handles: cached memory, streams of host
// fallbacks, plans, compiled programs. It must forget them, or later calls would fail.
#pragma once

namespace bp::core {

struct Target;

// Moves target.own_tables.devices to target.next_devices, and puts functions of the host in its
// place.
void watch_resets(Target& target);

}  // namespace bp::core
