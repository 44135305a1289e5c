// The op cases in parts, so that a worker makes only the cases that it runs.
#pragma once

#include <compare>
#include <string_view>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

// The cases of one op, or, for op 0, the gradients of a family, because a gradient case needs two
// ops.
struct OpPart {
  size_t family = 0;  // The index into op_families().
  uint32_t op = 0;

  auto operator<=>(const OpPart&) const = default;
};

// Returns the parts that may have the case `id`, which names its op; none for cases that belong to
// no op.
std::vector<OpPart> parts_of(std::string_view id);

// Appends the cases of a part. All parts together are the cases of add_op_cases(), without the
// known answers.
void add_op_part(std::vector<Case>& cases, const OpPart& part);

}  // namespace bp::conformance
