// What every op refuses before a kernel sees it.
#pragma once

#include "conformance/case.hpp"
#include "conformance/cases/rules.hpp"

namespace bp::conformance {

// Adds bad_input.<rule>.<op> for each op of `rows`.
void add_bad_input_cases(std::vector<Case>& cases, const OpCases& rows);

}  // namespace bp::conformance
