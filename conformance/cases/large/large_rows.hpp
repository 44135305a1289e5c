// The list of large calls: a few sizes for each class of kernel, across 2^16, 2^20, 2^24 and 2^31
// elements.
#pragma once

#include <vector>

#include "conformance/cases/large/large_call.hpp"

namespace bp::conformance {

// Returns the large calls of the ops of `rows`, whose oracles they use. No rule makes other cases
// from them.
std::vector<LargeCall> large_calls(const OpCases& rows);

// Returns calls with launch flags: for each op and dtype one with BP_LAUNCH_DETERMINISTIC, and for
// products one with BP_LAUNCH_STRICT_F32. They have the size of their rows.
std::vector<LargeCall> flagged_calls(const OpCases& rows);

// Returns a call with the op, the oracle and the derived inputs of a row, and without arguments.
LargeCall start_large(const OpCase& model, const std::string& detail, Tier tier);

// Adds the large calls of element-wise ops, each of which follows from a row of the op.
void add_large_elements(const OpCases& rows, std::vector<LargeCall>& calls);

}  // namespace bp::conformance
