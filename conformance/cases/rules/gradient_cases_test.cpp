// Tests the oracles of gradients against those of their forward ops, for every pair in the case
// lists.
#include "conformance/cases/rules/gradient_cases.hpp"

#include <gtest/gtest.h>

#include <set>

#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {
namespace {

std::vector<GradientPair> all_pairs() {
  std::vector<GradientPair> pairs;
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (GradientPair& pair : gradient_pairs(rows)) pairs.push_back(std::move(pair));
  }
  return pairs;
}

TEST(GradientCases, OraclesAreAdjointInF64) {
  std::set<uint32_t> ops;
  for (const GradientPair& pair : all_pairs()) {
    if (pair.backward.dtype != "f64") continue;
    const AdjointResult result = adjoint_test(pair, 7, run_oracle);
    // Differences of an oracle with 106 bits have about 15 right digits, and saved tensors are
    // rounded.
    const double size = std::fmax(1, std::fabs(result.left));
    EXPECT_NEAR(result.left, result.right, 1e-11 * size) << pair.backward.id();
    ops.insert(pair.backward.op);
  }
  EXPECT_TRUE(ops.contains(BP_OP_CROSS_ENTROPY_BACKWARD));
  EXPECT_TRUE(ops.contains(BP_OP_CONVOLUTION_BACKWARD_BIAS));
}

TEST(GradientCases, ReachEveryGradientOfTheSpec) {
  std::set<uint32_t> ops, families;
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (const OpCase& row : rows) families.insert(row.op);
  }
  for (const GradientPair& pair : all_pairs()) ops.insert(pair.backward.op);
  for (const OpInfo& op : all_ops()) {
    const bool is_gradient = op.name.find("_backward") != std::string_view::npos;
    EXPECT_TRUE(!is_gradient || !families.contains(op.id) || ops.contains(op.id)) << op.name;
  }
}

// The check must find a wrong gradient, else the other tests prove nothing.
TEST(GradientCases, AWrongGradientIsNotAdjoint) {
  size_t seen = 0;
  for (const GradientPair& pair : all_pairs()) {
    if (pair.backward.dtype != "f32") continue;
    const AdjointResult result =
        adjoint_test(pair, 7, [&](const OpCase& row, const CallData& data) {
          Ran ran = run_oracle(row, data);
          if (row.op == pair.forward.op) return ran;
          for (OutputView& output : ran.outputs) {
            for (DoubleDouble& value : output.value) value = value * DoubleDouble(1.01);
          }
          return ran;
        });
    // If the product is near zero, as for the norm of one element, a hundredth of it is too.
    if (0.01 * std::fabs(result.left) <= 2 * result.allowed) continue;
    EXPECT_GT(std::fabs(result.left - result.right), result.allowed) << pair.backward.id();
    ++seen;
  }
  EXPECT_GT(seen, 50u);
}

}  // namespace
}  // namespace bp::conformance
