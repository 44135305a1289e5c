#include "runtime/distributed/state_names.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace bp::distributed {

std::pair<std::string, size_t> split_state_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {name, SIZE_MAX};
  size_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + dot + 1, end, number);
  if (error != std::errc() || rest != end) return {name, SIZE_MAX};
  return {name.substr(0, dot), number};
}

StateKind state_kind(const std::string& name, IntList shape, const std::vector<std::string>& names,
                     size_t parameter_count) {
  if (std::ranges::find(names, name) != names.end()) return StateKind::kParameter;
  if (split_state_name(name).second < parameter_count) return StateKind::kOfParameter;
  const bool is_list = shape == IntList({static_cast<int64_t>(parameter_count)});
  return is_list ? StateKind::kOfAllParameters : StateKind::kOther;
}

std::vector<Piece> place_state(const std::vector<Piece>& pieces,
                               const std::vector<std::string>& names,
                               const std::vector<size_t>& own) {
  std::vector<Piece> placed;
  for (const Piece& piece : pieces) {
    const StateKind kind = state_kind(piece.name, piece.shape, names, own.size());
    if (kind == StateKind::kOfAllParameters) {
      for (size_t i = 0; i < own.size(); ++i) {
        placed.push_back({piece.name,
                          {static_cast<int64_t>(names.size())},
                          {static_cast<int64_t>(own[i])},
                          piece.tensor.narrow(0, static_cast<int64_t>(i), 1)});
      }
      continue;
    }
    placed.push_back(piece);
    if (kind != StateKind::kOfParameter) continue;
    const auto [prefix, number] = split_state_name(piece.name);
    placed.back().name = prefix + "." + std::to_string(own[number]);
  }
  return placed;
}

}  // namespace bp::distributed
