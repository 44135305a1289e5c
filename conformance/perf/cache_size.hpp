// How large the last-level cache is that inputs have to exceed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace bp::conformance {

struct CacheSize {
  uint64_t bytes = 0;
  std::string source;
};

// Of a device of class host, what the system says of the caches of the first processor; of others,
// which the ABI cannot ask, an upper bound of today's devices. `target` is as a worker describes
// it.
CacheSize cache_size_of(const nlohmann::json& target);

// "512", "64K", "32M" or "1G" as bytes; 0 for anything else.
uint64_t parse_size(const std::string& text);

}  // namespace bp::conformance
