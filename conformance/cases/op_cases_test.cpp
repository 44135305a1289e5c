// Tests the lists of op cases without a backend.
#include <gtest/gtest.h>

#include <set>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/memory/layout.hpp"

namespace bp::conformance {
namespace {

OpCases all_cases() {
  OpCases cases;
  for (const OpFamily& family : op_families()) family.add(cases);
  return cases;
}

TEST(OpCases, HaveIdsOfTheirOwn) {
  std::set<std::string> ids;
  for (const OpCase& op_case : all_cases()) {
    EXPECT_TRUE(ids.insert(op_case.id()).second) << op_case.id();
  }
}

TEST(OpCases, CoverEveryOpAtTierSmoke) {
  std::set<uint32_t> covered;
  for (const OpCase& op_case : all_cases()) {
    if (op_case.is_smoke) covered.insert(op_case.op);
  }
  for (const OpInfo& op : all_ops()) EXPECT_TRUE(covered.contains(op.id)) << op.name;
}

// Every oracle gives one expectation for each output, of the output's size.
TEST(OpCases, HaveOraclesThatFitTheirOutputs) {
  for (const OpCase& op_case : all_cases()) {
    if (!op_case.is_smoke || op_case.fails_on_device) continue;
    const CallData data(op_case, 7);
    const std::vector<Expected> expected = op_case.reference(data, Numerics{});
    size_t output = 0;
    for (const TensorArgument& argument : op_case.tensors) {
      if (argument.role == Role::kInput) continue;
      ASSERT_LT(output, expected.size()) << op_case.id();
      EXPECT_EQ(expected[output].value.size(), element_count(argument.shape)) << op_case.id();
      ++output;
    }
    EXPECT_EQ(output, expected.size()) << op_case.id();
  }
}

TEST(OpCases, DataDependOnTheSeedAlone) {
  const OpCases cases = all_cases();
  const CallData first(cases[0], 7), again(cases[0], 7), other(cases[0], 8);
  const auto value = [](const CallData& data) { return data.tensors()[0].data[0].hi; };
  EXPECT_EQ(value(first), value(again));
  EXPECT_NE(value(first), value(other));
}

TEST(Frame, WritesMembersByName) {
  const Shape axes = {1, 2};
  Frame frame(BP_OP_SUM);
  bp_tensor x{}, y{};
  frame.set_tensor("x", &x);
  frame.set_tensor("y", &y);
  frame.set_list("axes", axes);
  frame.set_integer("keepdims", 1);
  const auto& args = *static_cast<const bp_sum_args*>(frame.data());
  EXPECT_EQ(args.struct_size, sizeof(bp_sum_args));
  EXPECT_EQ(args.x, &x);
  EXPECT_EQ(args.y, &y);
  EXPECT_EQ(args.axes_count, 2u);
  EXPECT_EQ(args.axes, axes.data());
  EXPECT_EQ(args.keepdims, 1);
  EXPECT_THROW(frame.set_integer("axis", 1), std::invalid_argument);
}

TEST(Frame, WritesScalarsAndLists) {
  Frame add(BP_OP_ADD);
  add.set_scalar("b", float_scalar(0.5));
  const auto& binary = *static_cast<const bp_add_args*>(add.data());
  EXPECT_EQ(binary.b, nullptr);
  EXPECT_EQ(binary.b_scalar.dtype, bp_dtype{BP_F64});
  bp_tensor p{}, q{}, g{};
  Frame step(BP_OP_SGD_STEP);
  step.add_tensor("params", &p);
  step.add_tensor("grads", &g);
  step.add_tensor("params", &q);
  step.set_number("momentum", 0.9);
  const auto& sgd = *static_cast<const bp_sgd_step_args*>(step.data());
  EXPECT_EQ(sgd.params_count, 2u);
  EXPECT_EQ(sgd.params[1], &q);
  EXPECT_EQ(sgd.grads_count, 1u);
  EXPECT_EQ(sgd.grads[0], &g);
  EXPECT_EQ(sgd.momentum, 0.9);
}

TEST(Layout, PlacesElementsWhereItsNameSays) {
  const Shape shape = {2, 3};
  EXPECT_EQ(place(Layout::kDense, shape).strides, (Shape{3, 1}));
  EXPECT_EQ(place(Layout::kTransposed, shape).strides, (Shape{1, 2}));
  EXPECT_EQ(place(Layout::kSliced, shape).strides, (Shape{6, 1}));
  EXPECT_EQ(place(Layout::kStepped, shape).strides, (Shape{6, 2}));
  EXPECT_EQ(place(Layout::kBroadcastFirst, shape).strides, (Shape{0, 1}));
  const Placement negative = place(Layout::kNegative, shape);
  EXPECT_EQ(negative.strides, (Shape{3, -1}));
  EXPECT_EQ(negative.lowest, -2);
  EXPECT_EQ(negative.highest, 3);
  EXPECT_EQ(place(Layout::kDense, {2, 0}).span(), 0);
  EXPECT_EQ(place(Layout::kDense, {}).span(), 1);
}

TEST(Layout, BroadcastElementsShareTheirMemory) {
  const Shape shape = {2, 3};
  const Placement first = place(Layout::kBroadcastFirst, shape);
  EXPECT_EQ(stored_index(first, shape, 4), 1);
  EXPECT_EQ(element_offset(first, shape, 4), 1);
  EXPECT_EQ(stored_index(place(Layout::kBroadcastAll, shape), shape, 5), 0);
  EXPECT_EQ(stored_index(place(Layout::kDense, shape), shape, 5), 5);
}

}  // namespace
}  // namespace bp::conformance
