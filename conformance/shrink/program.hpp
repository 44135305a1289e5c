// Writes a failing call as one C file, which needs the host library and nothing of the suite.
#pragma once

#include <string>

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// Returns the C source of a program that loads the backend of `t` and launches the call on the data
// of the case. The program compares the results with the values that the oracle allows under the
// numerics that the kernel declares. It exits with 0 if all is right, with 1 and a line about the
// first bad element if not, and with 2 if the backend does not load. This function launches nothing
// itself.
std::string standalone_program(Context& t, const OpCase& op_case);

}  // namespace bp::conformance
