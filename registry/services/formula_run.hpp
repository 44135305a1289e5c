// Runs the decomposition of an op that was described at run time.
#pragma once

#include "registry/calls/formula.hpp"
#include "registry/services/decompose.hpp"

namespace bp::services {

// Runs `formula` for `frame`, which has its size. `name` is that of the op, for texts of failures.
void run_formula(Evaluator& e, const core::Formula& formula, const char* name, const void* frame);

}  // namespace bp::services
