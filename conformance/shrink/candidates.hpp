// Simplifies a failing call, one property at a time.
#pragma once

#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// Returns legal calls that are simpler than `current` in one property, those that simplify most
// first: dense layouts, halved and smaller extents, fewer axes, plain attributes, data that name
// their elements. None equals `current`. Shapes and attributes do not change if the oracle of the
// case has its own.
std::vector<OpCase> simpler_calls(const OpCase& current);

// Returns whether the oracle reads everything from the call.
bool follows_call(const OpCase& op_case);

// Returns whether, in addition, the data do not follow from other data, so that shapes and
// attributes may change.
bool follows_shapes(const OpCase& op_case);

}  // namespace bp::conformance
