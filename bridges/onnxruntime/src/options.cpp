#include "options.hpp"

#include <charconv>
#include <string_view>

namespace bpo {
namespace {

constexpr size_t kMostGraphs = 1024;

// ONNX Runtime puts "ep.<name of the provider in lower case>." in front of each option.
std::string prefix_of(const char* name) {
  std::string prefix = "ep.";
  for (const char* c = name; *c != 0; ++c) {
    prefix += static_cast<char>(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
  }
  return prefix + ".";
}

size_t parse_count(std::string_view key, std::string_view value) {
  size_t count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc() || end != value.data() + value.size() || count > kMostGraphs) {
    throw OrtError(BP_INVALID_ARGUMENT, std::string(key) + " is '" + std::string(value) +
                                            "'; allowed: a number from 0 to " +
                                            std::to_string(kMostGraphs));
  }
  return count;
}

bool parse_choice(std::string_view key, std::string_view value) {
  if (value == "0" || value == "1") return value == "1";
  throw OrtError(BP_INVALID_ARGUMENT,
                 std::string(key) + " is '" + std::string(value) + "'; allowed: 0 or 1");
}

void take(std::string_view key, std::string_view value, Options& options) {
  if (key == "backplane.graphs") {
    options.graph_count = parse_count(key, value);
    return;
  }
  if (key == "backplane.programs") {
    options.as_programs = parse_choice(key, value);
    return;
  }
  throw OrtError(BP_INVALID_ARGUMENT,
                 "the provider has no option '" + std::string(key) + "'; allowed: " + kOptionHelp);
}

}  // namespace

Options read_options(const Ort& ort, const OrtSessionOptions* session, const char* name) {
  OrtKeyValuePairs* owned = nullptr;
  ort.check(ort.GetSessionOptionsConfigEntries(session, &owned), "GetSessionOptionsConfigEntries");
  const Pairs entries(ort, owned);
  const char* const* keys = nullptr;
  const char* const* values = nullptr;
  size_t count = 0;
  ort.GetKeyValuePairs(entries.get(), &keys, &values, &count);
  const std::string prefix = prefix_of(name);
  Options options;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view key = keys[i];
    if (key.starts_with(prefix)) take(key.substr(prefix.size()), values[i], options);
  }
  return options;
}

}  // namespace bpo
