// The wrong elements of an output in words: what their values have in common, and where they lie.
// The two are found apart, because special values often lie at the end of a row by chance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/cases/engine/op_launch.hpp"
#include "conformance/numerics/accept.hpp"

namespace bp::conformance {

// An output, what it should be, and the row-major numbers of its wrong elements, of which there is
// at least one.
struct Mistakes {
  const OutputView& output;
  const Expected& expected;
  const std::vector<int64_t>& wrong;
};

// Returns what the values have in common: "each should be NaN; none of the 3 that should be NaN is
// right".
std::string value_of(const Mistakes& mistakes);

// Returns where the elements lie: "all elements with index 24 on axis 1".
std::string place_of(const Mistakes& mistakes);

// Returns whether the wrong elements are all those behind the last whole tile of an axis, or of the
// row-major order, and no others.
bool fill_a_tail(const Mistakes& mistakes);

}  // namespace bp::conformance
