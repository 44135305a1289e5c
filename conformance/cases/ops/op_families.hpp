// The lists of op cases, with a function for each family of the op specification.
#pragma once

#include <span>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

struct OpFamily {
  const char* group;  // The group of its cases in reports.
  void (*add)(OpCases&);
};
std::span<const OpFamily> op_families();

#define BP_OP_FAMILY(group, name) void add_##name(OpCases& cases);
#include "conformance/cases/ops/op_families.def"
#undef BP_OP_FAMILY

}  // namespace bp::conformance
