#include "registry/plugins/backend_options.hpp"

#include <algorithm>

#include "registry/boundary/fail.hpp"

namespace bp::core {
namespace {

// Returns the key in "acme.npu.level" or "npu.level" for the backend acme.npu, or "" for the key of
// another backend.
std::string_view key_for(std::string_view name, std::string_view full_key) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  for (const std::string_view prefix : {name, last}) {
    if (full_key.size() > prefix.size() && full_key.starts_with(prefix) &&
        full_key[prefix.size()] == '.') {
      return full_key.substr(prefix.size() + 1);
    }
  }
  return "";
}

bp_status add_part(std::string_view part, std::string_view name, BackendOptions& options) {
  const size_t equals = part.find('=');
  const size_t dot = part.substr(0, equals).find('.');
  if (equals == part.npos || dot == part.npos || dot == 0 || part[equals - 1] == '.') {
    return fail(BP_INVALID_ARGUMENT, "BACKPLANE_OPTIONS: '" + std::string(part) +
                                         "' is not NAME.KEY=VALUE, such as cpu.threads=4");
  }
  const std::string key(key_for(name, part.substr(0, equals)));
  if (key.empty() || std::ranges::count(options, key, &BackendOptions::value_type::first) != 0) {
    return BP_OK;
  }
  options.emplace_back(key, part.substr(equals + 1));
  return BP_OK;
}

}  // namespace

bp_status add_environment_options(std::string_view text, std::string_view name,
                                  BackendOptions& options) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.empty()) continue;
    if (const bp_status status = add_part(part, name, options); status != BP_OK) return status;
  }
  return BP_OK;
}

}  // namespace bp::core
