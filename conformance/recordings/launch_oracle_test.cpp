#include "conformance/recordings/launch_oracle.hpp"

#include <gtest/gtest.h>

#include <set>

#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {
namespace {

// Returns the launch that a recording of the case would have.
RecordedLaunch launch_of(const OpCase& op_case) {
  RecordedLaunch launch;
  launch.op = op_case.op;
  for (const TensorArgument& each : op_case.tensors) {
    launch.tensors.push_back({each.name, each.role, each.dtype, each.shape, {}});
  }
  launch.attributes = op_case.attributes;
  return launch;
}

// The launches include optional arguments, lists, and outputs that are saved for the gradient,
// present and absent.
TEST(LaunchOracles, JudgeEveryLaunchThatTheSuiteMakes) {
  const LaunchOracles oracles;
  OpCases cases;
  for (const OpFamily& family : op_families()) family.add(cases);
  std::set<uint32_t> ops;
  std::set<std::string> unjudged;
  for (const OpCase& op_case : cases) {
    if (op_case.fails_on_device) continue;  // Such a call has no result.
    const std::optional<OpCase> made = oracles.case_of(launch_of(op_case));
    if (!made) {
      unjudged.insert(std::string(op_info(op_case.op).name) + ": " + op_case.id());
      continue;
    }
    ops.insert(op_case.op);
    EXPECT_EQ(made->tensors.size(), op_case.tensors.size()) << op_case.id();
  }
  EXPECT_TRUE(unjudged.empty()) << unjudged.size() << ", such as " << *unjudged.begin();
  EXPECT_EQ(ops.size(), all_ops().size());
}

TEST(LaunchOracles, TakeTheShapesAndAttributesOfTheLaunch) {
  const auto tensor = [](const char* name, Role role, Shape shape) {
    return RecordedTensor{name, role, BP_F32, std::move(shape), {}};
  };
  const RecordedLaunch launch{
      .op = BP_OP_LAYER_NORM,
      .tensors = {tensor("x", Role::kInput, {2, 2}), tensor("y", Role::kOutput, {2, 2}),
                  tensor("mean", Role::kOutput, {2}), tensor("rstd", Role::kOutput, {2})},
      .attributes = {{"normalized_ndim", int64_t{1}}, {"eps", 3.0}}};
  const std::optional<OpCase> op_case = LaunchOracles().case_of(launch);
  ASSERT_TRUE(op_case);
  const std::vector<Elements> inputs = {{1.0, 3.0, 5.0, 5.0}, {}, {}, {}};
  const bp_kernel kernel{.struct_size = sizeof(kernel), .struct_type = BP_STRUCT_KERNEL};
  const auto judged = [&](Elements y) {
    std::vector<OutputView> outputs;
    const auto add = [&](const char* name, Shape shape, Elements values) {
      OutputView view{name, BP_F32, std::move(shape), {}, {}, false, {}, true};
      for (const DoubleDouble value : values) {
        std::byte bytes[4];
        store_element(BP_F32, value, bytes);
        view.bits.push_back(element_bits_at(BP_F32, bytes));
      }
      view.is_unwritten.assign(values.size(), false);
      view.value = std::move(values);
      outputs.push_back(std::move(view));
    };
    add("y", {2, 2}, std::move(y));
    add("mean", {2}, {2.0, 5.0});
    add("rstd", {2}, {0.5, round_to(BP_F32, DoubleDouble(1) / sqrt(DoubleDouble(3)))});
    return judge_launch(*op_case, inputs, std::move(outputs), &kernel);
  };
  EXPECT_TRUE(judged({-0.5, 0.5, 0.0, 0.0}).is_right()) << judged({-0.5, 0.5, 0.0, 0.0}).message;
  EXPECT_FALSE(judged({-0.5, 0.6, 0.0, 0.0}).is_right());
}

}  // namespace
}  // namespace bp::conformance
