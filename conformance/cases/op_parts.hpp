// The op cases in parts, so that a worker makes those that it runs and no others.
#pragma once

#include <compare>
#include <string_view>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

// The cases of one op, or, for op 0, the gradients of a family, each of which needs two ops.
struct OpPart {
  size_t family = 0;  // Into op_families().
  uint32_t op = 0;

  auto operator<=>(const OpPart&) const = default;
};

// The parts that may have the case `id`: it names its op. None for cases that belong to no op.
std::vector<OpPart> parts_of(std::string_view id);

// Appends the cases of a part. All parts together are what add_op_cases() gives, but for known
// answers.
void add_op_part(std::vector<Case>& cases, const OpPart& part);

}  // namespace bp::conformance
