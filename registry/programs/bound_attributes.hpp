// Attributes of a node whose number is an extent of the program, through a decomposition.
//
// A decomposition runs for numbers, and a bound attribute has another one in each launch. So the
// decomposition runs twice, with the numbers of two moments, and what differs between the two sets
// of nodes is bound in turn. This holds for all launches if the formula only hands the attribute
// on, as in "softmax(x, axis=axis)".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/operator.h"
#include "registry/programs/node_place.hpp"

namespace bp::core {

// A choice of the numbers of all ranges, for which the formulas of a program have a result.
enum class Moment : uint8_t { preferred, least, most };

// Returns the number of each extent. Returns nothing if an extent is one that no compiler takes.
std::optional<std::vector<int64_t>> extents_at(std::span<const bp_program_extent> extents,
                                               Moment moment);

// Returns whether an extent, for which extents_at() has a number, has one number in every launch.
bool is_constant(std::span<const bp_program_extent> extents, uint32_t extent);

// Returns whether each place in a formula that has `name` hands it on as the whole attribute of
// another op: "name=name", and nothing else.
bool only_hands_on(std::string_view formula, std::string_view name);

// Binds the attributes by which `first` and `second` differ, two runs of one decomposition with the
// numbers `at_first` and `at_second` for the extents in `bindings`. Returns "", or why a difference
// cannot be bound.
std::string bind_differences(std::span<const bp_extent_binding> bindings,
                             const std::vector<int64_t>& at_first,
                             const std::vector<int64_t>& at_second, std::vector<MadeNode>& first,
                             const std::vector<MadeNode>& second);

}  // namespace bp::core
