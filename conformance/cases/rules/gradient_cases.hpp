// Gradients as a whole: the backward kernel against the forward op that it belongs to.
#pragma once

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {

// A gradient and the call that it belongs to. Tensors are matched by name: grad_<result> is v,
// grad_<input> is what the backward kernel gives, and every other one is the forward call's.
struct GradientPair {
  OpCase forward, backward;
};

// The pairs of the rows whose op is named like another one and "_backward...", with random data.
std::vector<GradientPair> gradient_pairs(const OpCases& rows);

// What a call gave, and how exact it was meant to be.
struct Ran {
  std::vector<OutputView> outputs;
  Numerics numerics;
};
using RunCall = std::function<Ran(const OpCase& row, const CallData& data)>;

// <v, J u> and <J^T v, u>, and how far they may be apart.
struct AdjointResult {
  double left, right, allowed;
  bool has_run_forward;  // J u is what `run` gave for u, else differences of the oracle.
};
AdjointResult adjoint_test(const GradientPair& pair, uint64_t seed, const RunCall& run);

// The oracle in place of a device: its results, rounded.
Ran run_oracle(const OpCase& row, const CallData& data);

// Adds gradient.adjoint.<op>.<dtype>.<detail> for each op of `rows` whose name is that of another
// one and "_backward...".
void add_gradient_cases(std::vector<Case>& cases, const OpCases& rows);

// Adds the cases of random numbers whose right values are published.
void add_known_answers(std::vector<Case>& cases);

}  // namespace bp::conformance
