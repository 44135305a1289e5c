#include "registry/layers/options.hpp"

#include <unistd.h>

#include <charconv>

#include "registry/boundary/fail.hpp"

namespace bp::layers {

const std::string& Options::text(std::string_view key) const {
  static const std::string none;
  const auto found = values_.find(key);
  return found == values_.end() ? none : found->second;
}

bp_status Options::number(std::string_view layer, std::string_view key, uint64_t largest,
                          uint64_t& out) const {
  if (!has(key)) return BP_OK;
  const std::string& given = text(key);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
  if (error != std::errc() || end != given.data() + given.size() || value > largest) {
    return fail(BP_INVALID_ARGUMENT, "layer option " + std::string(layer) + "." + std::string(key) +
                                         " is '" + given + "', allowed are numbers up to " +
                                         std::to_string(largest));
  }
  out = value;
  return BP_OK;
}

std::vector<std::string> Options::list(std::string_view key) const {
  std::vector<std::string> parts;
  std::string_view rest = text(key);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (end != 0) parts.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return parts;
}

bool fits_glob(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0, star = pattern.npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string with_names(const std::string& pattern, const std::string& backend) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'b') name += backend;
    if (next == 'p') name += std::to_string(getpid());
    if (next == 'b' || next == 'p') {
      ++i;
    } else {
      name += pattern[i];
    }
  }
  return name;
}

}  // namespace bp::layers
