// The caches of a target as JSON.
#pragma once

#include <string>

#include "registry/services/cache_set.hpp"

namespace bp::services {

// Returns the text of bp_memory_snapshot().
std::string snapshot(const bp_target& target, const CacheSet& caches, const MemoryHistory& history);

}  // namespace bp::services
