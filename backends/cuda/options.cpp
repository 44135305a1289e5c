#include "backends/cuda/options.hpp"

#include <algorithm>
#include <utility>

namespace bp::cuda {
namespace {

std::string option(const bp_host& host, const char* key, std::string otherwise = {}) {
  const auto value = find_option(host, key);
  return value ? std::string(*value) : std::move(otherwise);
}

std::vector<std::string> parts(const std::string& text) {
  std::vector<std::string> result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) result.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

}  // namespace

LibrarySearch read_library_search(const bp_host& host) {
  LibrarySearch search;
  search.folders = parts(option(host, "library_path"));
  search.toolkit = option(host, "toolkit_path", search.toolkit);
  search.python = option(host, "python_path");
  return search;
}

Options read_options(const bp_host& host) {
  Options options{.devices = ChosenDevices(host), .libraries = read_library_search(host)};
  if (const auto value = find_option(host, "allocator")) {
    if (*value != "pool" && *value != "plain") refuse_option("allocator", *value, "pool or plain");
    options.has_pool = *value == "pool";
  }
  if (const auto value = find_option(host, "tf32")) {
    options.allows_tf32 = read_yes_or_no("tf32", *value);
  }
  return options;
}

}  // namespace bp::cuda
