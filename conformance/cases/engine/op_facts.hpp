// What an op case says of its call, by the classes of ops.def and never by the name of the op.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// An input of floating-point numbers whose values are free.
bool holds_numbers(const TensorArgument& argument);

// Indices are i64 in every backend, and may be i32.
bool is_index(const OpCase& row, const TensorArgument& argument);

// Which tensors have data that follow from others, argument by argument.
std::vector<bool> derived_tensors(const OpCase& row);

// Whether the op is of one of these classes of ops.def, or of one whose name begins so.
bool has_class(const OpCase& row, std::initializer_list<std::string_view> classes);

}  // namespace bp::conformance
