// Gradients as a whole: the backward kernel against the forward op that it belongs to.
#pragma once

#include "conformance/cases/op_engine.hpp"
#include "conformance/cases/rules.hpp"

namespace bp::conformance {

// Adds gradient.adjoint.<op>.<dtype>.<detail> for each op of `rows` whose name is that of another
// one and "_backward...".
void add_gradient_cases(std::vector<Case>& cases, const OpCases& rows);

// Adds the cases of random numbers whose right values are published.
void add_known_answers(std::vector<Case>& cases);

}  // namespace bp::conformance
