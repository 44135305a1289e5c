#include "backends/cuda/visible.hpp"

#include <algorithm>
#include <charconv>

namespace bp::cuda {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::optional<size_t> by_index(std::string_view entry, size_t count) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error != std::errc() || end != entry.data() + entry.size() || index >= count) return {};
  return index;
}

// An entry may be the beginning of a UUID, if it fits one device alone.
std::optional<size_t> by_uuid(std::string_view entry, const std::vector<Listed>& listed) {
  std::optional<size_t> found;
  for (size_t i = 0; i < listed.size(); ++i) {
    if (!listed[i].uuid.starts_with(entry)) continue;
    if (found.has_value()) return {};
    found = i;
  }
  return found;
}

bool are_alike(const std::vector<Listed>& listed) {
  return std::ranges::all_of(listed,
                             [&](const Listed& each) { return each.name == listed.front().name; });
}

}  // namespace

std::optional<std::vector<size_t>> visible_devices(std::string_view visible, bool has_bus_order,
                                                   const std::vector<Listed>& listed) {
  std::vector<size_t> shown;
  while (true) {
    const size_t comma = std::min(visible.find(','), visible.size());
    const std::string_view entry = trimmed(visible.substr(0, comma));
    if (entry.starts_with("MIG")) return std::nullopt;
    const bool is_uuid = entry.starts_with("GPU-");
    const std::optional<size_t> place =
        is_uuid ? by_uuid(entry, listed) : by_index(entry, listed.size());
    if (!place.has_value()) return shown;
    if (!is_uuid && !has_bus_order && !are_alike(listed)) return std::nullopt;
    if (std::ranges::find(shown, *place) != shown.end()) return std::vector<size_t>();
    shown.push_back(*place);
    if (comma == visible.size()) return shown;
    visible.remove_prefix(comma + 1);
  }
}

}  // namespace bp::cuda
