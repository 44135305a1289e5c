// Device memory in numbers. Tensors take theirs from the caching allocator of their device.
#pragma once

#include <string>

#include "backplane/runtime/device.hpp"

namespace bp {

// What the cache of `device` holds and has done; the members are described in backplane/host.h.
bp_cache_statistics memory_statistics(Device device);

// The same as a table for people.
std::string memory_summary(Device device);

// Gives memory that no tensor uses back to the device.
void empty_cache(Device device);

}  // namespace bp
