// Cases of sums over so many terms that one which is made term by term loses digits.
#pragma once

#include "conformance/case.hpp"
#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {

struct LongSum {
  OpCase op_case;
  Tier tier;
};

// Those of the ops of `rows`, whose oracles they use. Terms are equal, so that roundings add up:
// the bound of a sum of n terms, which grows with the square root of n, does not hold then for a
// sum that is made term by term. No rule makes other cases of them.
std::vector<LongSum> long_sums(const OpCases& rows);

}  // namespace bp::conformance
