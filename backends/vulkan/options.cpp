#include "backends/vulkan/options.hpp"

#include "backplane/shell/options.hpp"

namespace bp::vulkan {

Options read_options(const bp_host& host) {
  Options options;
  if (const auto value = find_option(host, "device")) {
    options.device = static_cast<uint32_t>(read_number("device", *value, 0, UINT32_MAX));
  }
  if (const auto value = find_option(host, "cache")) options.cache_folder = *value;
  if (const auto value = find_option(host, "validation")) {
    options.has_validation = read_yes_or_no("validation", *value);
  }
  if (const auto value = find_option(host, "barriers")) {
    options.has_barriers = read_yes_or_no("barriers", *value);
  }
  return options;
}

}  // namespace bp::vulkan
