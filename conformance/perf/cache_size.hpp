// The size of the last-level cache, which the inputs of measured calls have to exceed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace bp::conformance {

struct CacheSize {
  uint64_t bytes = 0;
  std::string source;
};

// Returns the cache size of a device. For a device of class host it is what the system reports for
// the caches of the first processor. The ABI cannot ask other devices, so for them it is an upper
// bound of today's devices. `target` is the description by a worker.
CacheSize cache_size_of(const nlohmann::json& target);

// Returns "512", "64K", "32M" or "1G" in bytes; 0 for any other text.
uint64_t parse_size(const std::string& text);

}  // namespace bp::conformance
