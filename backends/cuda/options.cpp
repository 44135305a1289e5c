#include "backends/cuda/options.hpp"

#include <algorithm>

namespace bp::cuda {
namespace {

bool is_pool(std::string_view key, std::string_view value) {
  if (value == "pool") return true;
  if (value == "plain") return false;
  refuse_option(key, value, "pool or plain");
}

bool is_cudnn(std::string_view key, std::string_view value) {
  if (value == "cudnn") return true;
  if (value == "kernels") return false;
  refuse_option(key, value, "kernels or cudnn");
}

// Returns the parts between colons that are not empty.
std::vector<std::string> parts(std::string_view text) {
  std::vector<std::string> result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) result.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

}  // namespace

Options read_options(const bp_host& host) {
  Options options{.devices = ChosenDevices(host), .libraries = {}};
  if (const auto value = find_option(host, "allocator")) {
    options.has_pool = is_pool("allocator", *value);
  }
  if (const auto value = find_option(host, "tf32")) {
    options.allows_tf32 = read_yes_or_no("tf32", *value);
  }
  if (const auto value = find_option(host, "rounded_weights")) {
    options.rounds_weights = read_yes_or_no("rounded_weights", *value);
  }
  if (const auto value = find_option(host, "attention")) {
    options.has_library_attention = is_cudnn("attention", *value);
  }
  LibrarySearch& search = options.libraries;
  if (const auto value = find_option(host, "library_path")) search.folders = parts(*value);
  if (const auto value = find_option(host, "toolkit_path")) search.toolkit = *value;
  if (const auto value = find_option(host, "python_path")) search.python = *value;
  return options;
}

}  // namespace bp::cuda
