// Lists of tensors, for the cases of ops that work on several tensors in one call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "conformance/cases/ops/op_oracles.hpp"

namespace bp::conformance {

struct TensorList {
  std::vector<Shape> shapes;
  Layout lies = Layout::kDense;
};

const std::vector<TensorList>& tensor_lists();

// Returns the shapes of the list and `settings`, for the id of a case.
std::string detail_of(const TensorList& list, const std::string& settings);

// Adds a list argument to the case.
void add_tensors(OpCase& made, bp_dtype dtype, const TensorList& list, std::string_view name,
                 Role role, const Fill& fill);

// Adds the row with its rate in tensors of f64 and of f32. A step is an integer in both.
void add_with_rates(OpCases& cases, const OpCase& row);

}  // namespace bp::conformance
