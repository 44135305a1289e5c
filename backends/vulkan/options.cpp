#include "backends/vulkan/options.hpp"

namespace bp::vulkan {

Options read_options(const bp_host& host) {
  Options options{.devices = ChosenDevices(host), .cache_folder = {}};
  if (const auto value = find_option(host, "cache_path")) options.cache_folder = *value;
  if (const auto value = find_option(host, "validation")) {
    options.has_validation = read_yes_or_no("validation", *value);
  }
  if (const auto value = find_option(host, "barriers")) {
    options.has_barriers = read_yes_or_no("barriers", *value);
  }
  return options;
}

}  // namespace bp::vulkan
