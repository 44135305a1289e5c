// What can be made simpler in a failing call, one thing at a time.
#pragma once

#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// Legal calls that are simpler than `current` in one thing, those that simplify most first: dense
// layouts, halved and smaller extents, fewer axes, plain attributes, data that name their elements.
// None equals `current`. Shapes and attributes stay where the oracle of the case holds its own.
std::vector<OpCase> simpler_calls(const OpCase& current);

// Whether the oracle reads everything from the call.
bool follows_call(const OpCase& op_case);

// Whether the data do not follow from others either, so that shapes and attributes may change.
bool follows_shapes(const OpCase& op_case);

}  // namespace bp::conformance
