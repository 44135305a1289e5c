// Puts functions of the host in front of a backend's copies and fills, for streams whose launches
// are written into a program: copies and fills on the device become launches of ops there, and what
// would read or write memory of the host now is refused.
#pragma once

namespace bp::core {

struct Target;

// Moves target.own_tables.allocator to target.next_allocator, and puts functions of the host in its
// place.
void watch_memory(Target& target);

}  // namespace bp::core
