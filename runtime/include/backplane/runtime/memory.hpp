// Statistics of device memory. Tensors take their memory from the caching allocator of their
// device.
#pragma once

#include <string>

#include "backplane/runtime/device.hpp"

namespace bp {

// Returns what the cache of `device` holds and has done; backplane/host.h describes the members.
bp_cache_statistics memory_statistics(Device device);

// Returns the statistics as a table for people.
std::string memory_summary(Device device);

// Gives memory that no tensor uses back to the device.
void empty_cache(Device device);

}  // namespace bp
