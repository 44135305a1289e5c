#include "backplane/runtime/memory.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include "backplane/runtime/error.hpp"

namespace bp {

bp_cache_statistics memory_statistics(Device device) {
  bp_cache_statistics statistics{.struct_size = sizeof(bp_cache_statistics),
                                 .struct_type = BP_STRUCT_CACHE_STATISTICS};
  check(bp_cache_get_statistics(&device.target(), &statistics), "cache.get_statistics");
  return statistics;
}

std::string memory_summary(Device device) {
  const bp_cache_statistics s = memory_statistics(device);
  const std::array<std::pair<const char*, uint64_t>, 11> rows{{
      {"allocated bytes", s.allocated_bytes},
      {"allocated bytes, peak", s.allocated_peak_bytes},
      {"reserved bytes", s.reserved_bytes},
      {"reserved bytes, peak", s.reserved_peak_bytes},
      {"requested bytes", s.requested_bytes},
      {"allocations", s.allocation_count},
      {"frees", s.free_count},
      {"backend allocations", s.backend_allocation_count},
      {"backend frees", s.backend_free_count},
      {"retries", s.retry_count},
      {"out of memory", s.out_of_memory_count},
  }};
  std::string text = std::string("memory of ") + device.name() + "\n";
  for (const auto& [name, value] : rows) {
    std::array<char, 64> line;
    std::snprintf(line.data(), line.size(), "  %-22s %20llu\n", name,
                  static_cast<unsigned long long>(value));
    text += line.data();
  }
  return text;
}

void empty_cache(Device device) { check(bp_cache_empty(&device.target()), "cache.empty"); }

}  // namespace bp
