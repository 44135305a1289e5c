// Cases for gradients as a whole: they test the backward kernel against its forward op.
#pragma once

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {

// A gradient and the call that it belongs to. Tensors are matched by name: grad_<result> is v,
// grad_<input> is a result of the backward kernel, and every other tensor is one of the forward
// call.
struct GradientPair {
  OpCase forward, backward;
};

// Returns the pairs of the rows whose op has the name of another op and "_backward...", with random
// data.
std::vector<GradientPair> gradient_pairs(const OpCases& rows);

// The results of a call, and the declared precision.
struct Ran {
  std::vector<OutputView> outputs;
  Numerics numerics;
};
using RunCall = std::function<Ran(const OpCase& row, const CallData& data)>;

// <v, J u> and <J^T v, u>, and the difference that is allowed.
struct AdjointResult {
  double left, right, allowed;
  bool has_run_forward;  // J u came from `run` for u; else from differences of the oracle.
};
AdjointResult adjoint_test(const GradientPair& pair, uint64_t seed, const RunCall& run);

// Runs the oracle in place of a device, and rounds its results.
Ran run_oracle(const OpCase& row, const CallData& data);

// Adds gradient.adjoint.<op>.<dtype>.<detail> for each op of `rows` whose name is that of another
// op and "_backward...".
void add_gradient_cases(std::vector<Case>& cases, const OpCases& rows);

// Adds the cases of random numbers whose right values were published.
void add_known_answers(std::vector<Case>& cases);

}  // namespace bp::conformance
