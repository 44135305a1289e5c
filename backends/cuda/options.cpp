#include "backends/cuda/options.hpp"

#include <charconv>
#include <string_view>

#include "backplane/shell/options.hpp"

namespace bp::cuda {
namespace {

std::vector<int> read_ordinals(std::string_view text) {
  std::vector<int> ordinals;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    int ordinal = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), ordinal);
    if (error != std::errc() || end != part.data() + part.size() || ordinal < 0) {
      refuse_option("devices", text, "a list of ordinals, such as \"0,2\"");
    }
    ordinals.push_back(ordinal);
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : part.size());
  }
  return ordinals;
}

}  // namespace

Options read_options(const bp_host& host) {
  Options options;
  options.devices = read_ordinals(find_option(host, "devices").value_or(""));
  const std::string_view allocator = find_option(host, "allocator").value_or("");
  if (!allocator.empty() && allocator != "pool" && allocator != "plain") {
    refuse_option("allocator", allocator, "pool or plain");
  }
  options.has_pool = allocator != "plain";
  return options;
}

}  // namespace bp::cuda
