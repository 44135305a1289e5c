#include "conformance/perf/cache_size.hpp"

#include <algorithm>
#include <fstream>

namespace bp::conformance {
namespace {

constexpr uint64_t kUpperBound = 256u << 20;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;
constexpr const char* kCaches = "/sys/devices/system/cpu/cpu0/cache/index";

}  // namespace

uint64_t parse_size(const std::string& text) {
  size_t end = 0;
  uint64_t value = 0;
  try {
    value = std::stoull(text, &end);
  } catch (const std::exception&) {
    return 0;
  }
  if (text.empty() || text[0] < '0' || text[0] > '9' || value > kMostBytes) return 0;
  const std::string unit = text.substr(end);
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (shift < 0 || value > (kMostBytes >> shift)) return 0;
  return value << shift;
}

CacheSize cache_size_of(const nlohmann::json& target) {
  CacheSize found;
  if (target.value("class", "") == "host") {
    for (int index = 0; index < 8; ++index) {
      std::ifstream file(kCaches + std::to_string(index) + "/size");
      std::string text;
      if (file >> text) found.bytes = std::max(found.bytes, parse_size(text));
    }
    if (found.bytes > 0) {
      found.source = "the largest cache that the system names";
      return found;
    }
  }
  return {kUpperBound, "an upper bound: --cache-bytes says it better"};
}

}  // namespace bp::conformance
