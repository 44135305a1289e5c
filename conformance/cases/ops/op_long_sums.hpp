// Cases of sums with so many terms that a sum which is made term by term loses digits.
#pragma once

#include "conformance/case.hpp"
#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {

struct LongSum {
  OpCase op_case;
  Tier tier;
};

// Returns the cases of the ops of `rows`, whose oracles they use. Terms are equal, so that
// roundings add up. The bound of a sum of n terms grows with the square root of n, so a sum that is
// made term by term exceeds it. No rule makes other cases from them.
std::vector<LongSum> long_sums(const OpCases& rows);

}  // namespace bp::conformance
