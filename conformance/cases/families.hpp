// The lists of cases. No list needs a plugin, because every backend has the same cases.
#pragma once

#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

#define BP_FAMILY(name) void add_##name##_cases(std::vector<Case>& cases);
#include "conformance/cases/families.def"
#undef BP_FAMILY

void add_op_cases(std::vector<Case>& cases);

}  // namespace bp::conformance
