#include "backends/cuda/options.hpp"

#include <charconv>
#include <string_view>

#include "backplane/shell/boundary.hpp"

namespace bp::cuda {
namespace {

std::string_view option(const bp_host& host, const char* key) {
  const char* value = nullptr;
  return host.get_option(host.self, key, &value) == BP_OK ? value : "";
}

std::vector<int> read_ordinals(std::string_view text) {
  std::vector<int> ordinals;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    int ordinal = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), ordinal);
    if (error != std::errc() || end != part.data() + part.size() || ordinal < 0) {
      throw StatusError(BP_INVALID_ARGUMENT, "option devices is \"" + std::string(text) +
                                                 "\"; ordinals such as \"0,2\" are allowed");
    }
    ordinals.push_back(ordinal);
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : part.size());
  }
  return ordinals;
}

}  // namespace

Options read_options(const bp_host& host) {
  Options options;
  options.devices = read_ordinals(option(host, "devices"));
  const std::string_view allocator = option(host, "allocator");
  if (!allocator.empty() && allocator != "pool" && allocator != "plain") {
    throw StatusError(BP_INVALID_ARGUMENT, "option allocator is \"" + std::string(allocator) +
                                               "\"; \"pool\" and \"plain\" are allowed");
  }
  options.has_pool = allocator != "plain";
  return options;
}

}  // namespace bp::cuda
