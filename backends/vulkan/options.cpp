#include "backends/vulkan/options.hpp"

#include <charconv>
#include <string_view>

#include "backplane/shell/boundary.hpp"

namespace bp::vulkan {
namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, const std::string& allowed) {
  throw StatusError(BP_INVALID_ARGUMENT, "option " + std::string(key) + ": \"" +
                                             std::string(value) + "\" is not " + allowed);
}

bool yes_or_no(std::string_view key, std::string_view value) {
  if (value == "yes") return true;
  if (value == "no") return false;
  refuse(key, value, "yes or no");
}

uint32_t device_number(std::string_view key, std::string_view value) {
  uint32_t parsed = 0;
  const char* const end = value.data() + value.size();
  const auto [last, error] = std::from_chars(value.data(), end, parsed);
  if (error != std::errc() || last != end) refuse(key, value, "the number of a device, from 0 on");
  return parsed;
}

}  // namespace

Options read_options(const bp_host& host) {
  Options options;
  const char* value = nullptr;
  const auto is_given = [&](const char* key) {
    return host.get_option(host.self, key, &value) == BP_OK;
  };
  if (is_given("device")) options.device = device_number("device", value);
  if (is_given("cache")) options.cache_folder = value;
  if (is_given("validation")) options.has_validation = yes_or_no("validation", value);
  if (is_given("barriers")) options.has_barriers = yes_or_no("barriers", value);
  return options;
}

}  // namespace bp::vulkan
