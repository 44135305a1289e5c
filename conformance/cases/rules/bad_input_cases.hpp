// Cases for calls that every op refuses before a kernel sees them.
#pragma once

#include <map>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {

// Adds bad_input.<rule>.<op> for each op of `rows`.
void add_bad_input_cases(std::vector<Case>& cases, const OpCases& rows);

// Adds bad_input.every_rule_of_the_spec.<op> for each op of `rows`.
void add_spec_rule_cases(std::vector<Case>& cases, const OpCases& rows);

// Returns, for each op, plain rows that differ in the tensors that are given, in their ranks or in
// the lengths of lists; the widest rows come first.
std::map<uint32_t, OpCases> rows_of_each_form(const OpCases& rows);

}  // namespace bp::conformance
