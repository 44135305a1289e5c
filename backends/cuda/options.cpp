#include "backends/cuda/options.hpp"

namespace bp::cuda {

Options read_options(const bp_host& host) {
  Options options{.devices = ChosenDevices(host)};
  if (const auto value = find_option(host, "allocator")) {
    if (*value != "pool" && *value != "plain") refuse_option("allocator", *value, "pool or plain");
    options.has_pool = *value == "pool";
  }
  return options;
}

}  // namespace bp::cuda
