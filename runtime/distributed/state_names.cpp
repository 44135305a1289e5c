#include "runtime/distributed/state_names.hpp"

#include <charconv>
#include <cstdint>

namespace bp::distributed {

std::pair<std::string, size_t> split_state_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {name, SIZE_MAX};
  size_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + dot + 1, end, number);
  if (error != std::errc() || rest != end) return {name, SIZE_MAX};
  return {name.substr(0, dot), number};
}

}  // namespace bp::distributed
