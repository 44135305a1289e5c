// The routines that child_test.cpp calls in children of the test program.
#pragma once

#include <vector>

#include "conformance/process/child.hpp"

namespace bp::conformance {

const std::vector<ChildRoutine>& child_test_routines();

}  // namespace bp::conformance
