// Facts about the call of an op case, from the classes of ops.def and never from the name of the
// op.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// Returns whether the argument is an input of floating-point numbers whose values are free.
bool holds_numbers(const TensorArgument& argument);

// Returns whether the argument holds indices, which are i64 in every backend, and may be i32.
bool is_index(const OpCase& row, const TensorArgument& argument);

// Returns the dtype that an inline scalar has whose rule is a dtype, or a set such as
// "set(f64, f32)": the first one.
bp_dtype first_dtype(const FrameMember& member);

// Returns, argument by argument, whether the data of the tensor follow from others.
std::vector<bool> derived_tensors(const OpCase& row);

// Returns whether the op is of one of these classes of ops.def, or of a class whose name begins
// with one of them.
bool has_class(const OpCase& row, std::initializer_list<std::string_view> classes);

}  // namespace bp::conformance
