// Cases for tensors whose memory is missing or too small, for every op.
#pragma once

#include "conformance/case.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {

// Adds bad_input.<rule>.<op> for calls whose elements do not lie in their buffers, and
// kernel.empty_needs_no_buffer.<op> for calls without elements. `rows` are the rows of a family and
// of the rules.
void add_buffer_cases(std::vector<Case>& cases, const OpCases& rows);

// Adds bad_input.foreign_buffer.<op> for calls with buffers that are not the backend's.
void add_foreign_buffer_cases(std::vector<Case>& cases, const OpCases& rows);

}  // namespace bp::conformance
