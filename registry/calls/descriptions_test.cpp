// Tests the descriptions of ops against the frames of ops.h and the rows of ops.def.
#include "registry/calls/descriptions.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <string_view>

#include "backplane/host.h"
#include "backplane/ops.h"
#include "registry/calls/frame_words.hpp"

namespace bp::core {
namespace {

const bp_op_desc& described(uint32_t op) {
  const bp_op_desc* desc = nullptr;
  EXPECT_EQ(bp_op_describe(op, &desc), BP_OK) << bp_error_text();
  return *desc;
}

const bp_op_argument& argument(const bp_op_desc& desc, std::string_view name) {
  for (uint64_t i = 0; i < desc.argument_count; ++i) {
    if (desc.arguments[i].name == name) return desc.arguments[i];
  }
  ADD_FAILURE() << desc.name << " has no argument " << name;
  return desc.arguments[0];
}

// [OP-1]
TEST(Descriptions, HaveEachArgumentOfOpsDefInItsOrder) {
  for (const OpRow& row : op_rows()) {
    const bp_op_desc& desc = described(row.op);
    EXPECT_STREQ(desc.name, row.name);
    EXPECT_EQ(desc.op, row.op);
    EXPECT_EQ(desc.frame_size_bytes, row.frame_size_bytes) << desc.name;
    EXPECT_EQ(desc.since, row.sizes[0].revision) << desc.name;
    EXPECT_STREQ(desc.numerics, row.numerics);
    const auto members = frame_members(row);
    ASSERT_EQ(desc.argument_count, members.size()) << desc.name;
    for (size_t i = 0; i < members.size(); ++i) {
      const bp_op_argument& argument = desc.arguments[i];
      EXPECT_STREQ(argument.name, members[i].name) << desc.name;
      EXPECT_EQ(argument.kind, static_cast<uint32_t>(members[i].kind) + 1) << desc.name;
      EXPECT_EQ(argument.offset_bytes, members[i].offset) << desc.name << " " << argument.name;
    }
  }
}

TEST(Descriptions, AreListedInTheOrderOfTheirNumbers) {
  uint32_t op = 0;
  size_t count = 0;
  for (uint32_t next = bp_op_next(0); next != 0; next = bp_op_next(next), ++count) {
    EXPECT_GT(next, op);
    op = next;
    EXPECT_EQ(described(op).op, op);
  }
  EXPECT_GE(count, op_rows().size());
  for (const OpRow& row : op_rows()) EXPECT_EQ(bp_op_next(row.op - 1), row.op) << row.name;
  EXPECT_EQ(bp_op_next(op), 0u);
  EXPECT_EQ(bp_op_next(UINT32_MAX), 0u);
}

TEST(Descriptions, SayWhichArgumentsAreFree) {
  for (const OpRow& row : op_rows()) {
    const bp_op_desc& desc = described(row.op);
    uint32_t tensor = 0, free_count = 0;
    for (uint64_t i = 0; i < desc.argument_count; ++i) {
      const bp_op_argument& argument = desc.arguments[i];
      if (argument.dtype_rule == nullptr) continue;
      EXPECT_EQ(argument.dtype_count != 0, row.tensors[tensor].is_free)
          << desc.name << " " << argument.name;
      EXPECT_EQ(argument.dtype_count != 0, argument.dtypes != nullptr);
      free_count += argument.dtype_count != 0;
      ++tensor;
    }
    EXPECT_EQ(tensor, row.tensor_count) << desc.name;
    EXPECT_EQ(free_count, row.free_count) << desc.name;
  }
}

TEST(Descriptions, HaveRulesDefaultsAndNames) {
  const bp_op_desc& softmax = described(BP_OP_SOFTMAX);
  EXPECT_STREQ(softmax.doc, "Exponentials of x, scaled to sum to 1 along axis.");
  EXPECT_STREQ(argument(softmax, "x").dtype_rule, "float");
  EXPECT_EQ(argument(softmax, "x").dtype_count, 4u);
  EXPECT_STREQ(argument(softmax, "y").dtype_rule, "like(x)");
  EXPECT_STREQ(argument(softmax, "y").shape_rule, "x.shape");
  EXPECT_EQ(argument(softmax, "y").may_alias, 1u);
  EXPECT_STREQ(argument(softmax, "axis").at_least, "0");
  EXPECT_STREQ(argument(softmax, "axis").below, "max(x.ndim, 1)");

  const bp_op_argument& eps = argument(described(BP_OP_RMS_NORM), "eps");
  EXPECT_EQ(eps.default_value.dtype, BP_F64);
  EXPECT_DOUBLE_EQ(std::bit_cast<double>(eps.default_value.bits), 1e-5);

  const bp_op_argument& activation = argument(described(BP_OP_LINEAR), "activation");
  EXPECT_EQ(activation.kind, BP_ARGUMENT_ENUM);
  EXPECT_STREQ(activation.value_names[BP_LINEAR_ACTIVATION_RELU - activation.first_value], "relu");
  EXPECT_EQ(activation.default_value.bits, BP_LINEAR_ACTIVATION_NONE);
  EXPECT_STREQ(activation.default_text, "none");
}

TEST(Descriptions, HaveTheLinesOfADecomposition) {
  const std::string lines = described(BP_OP_LOG_SOFTMAX).decomposition;
  EXPECT_NE(lines.find("wide = copy(x, dtype=acc(x))\npeak = "), std::string::npos) << lines;
  EXPECT_EQ(described(BP_OP_SOFTMAX).decomposition, nullptr);
}

TEST(Descriptions, OfAnUnknownOpAreRefused) {
  const bp_op_desc* desc = nullptr;
  EXPECT_EQ(bp_op_describe(999, &desc), BP_NOT_FOUND);
  EXPECT_STREQ(bp_error_text(), "op 999 is not known to this host");
  EXPECT_EQ(desc, nullptr);
  EXPECT_EQ(bp_op_describe(BP_OP_ADD, nullptr), BP_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace bp::core
