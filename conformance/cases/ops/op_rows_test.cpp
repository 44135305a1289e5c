// Tests that the rows of all families together cover each value of each attribute that has few
// values, and each optional tensor both given and left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {
namespace {

// The values that rows give for a member of an op's frame: values of attributes, or numbers of
// tensors.
using Given = std::map<std::pair<uint32_t, std::string_view>, std::set<int64_t>>;

Given given_by_rows() {
  Given given;
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (const OpCase& row : rows) {
      for (const FrameMember& member : op_info(row.op).members) {
        const auto count = std::ranges::count(row.tensors, member.name, &TensorArgument::name);
        if (member.dtype != "none") given[{row.op, member.name}].insert(count == 0 ? 0 : 1);
      }
      for (const Attribute& attribute : row.attributes) {
        const auto* value = std::get_if<int64_t>(&attribute.value);
        if (value != nullptr) given[{row.op, attribute.name}].insert(*value);
      }
    }
  }
  return given;
}

// Returns the last enumerator; the first one is 1.
int64_t enumerator_count(const OpInfo& op) {
  static const std::map<uint32_t, int64_t> counts = {
      {BP_OP_SCATTER_REDUCE, BP_SCATTER_REDUCE_REDUCTION_SUM},
      {BP_OP_GELU, BP_GELU_APPROXIMATION_TANH},
      {BP_OP_GELU_BACKWARD, BP_GELU_BACKWARD_APPROXIMATION_TANH},
      {BP_OP_LINEAR, BP_LINEAR_ACTIVATION_SILU},
      {BP_OP_CROSS_ENTROPY, BP_CROSS_ENTROPY_REDUCTION_SUM},
      {BP_OP_CROSS_ENTROPY_BACKWARD, BP_CROSS_ENTROPY_BACKWARD_REDUCTION_SUM},
  };
  const auto found = counts.find(op.id);
  return found == counts.end() ? 0 : found->second;
}

bool is_count(std::string_view member) { return member == "axis" || member == "normalized_ndim"; }

TEST(OpRows, GiveEveryValueOfEnumerationsAndFlags) {
  const Given given = given_by_rows();
  for (const OpInfo& op : all_ops()) {
    for (const FrameMember& member : op.members) {
      const auto found = given.find({op.id, member.name});
      const std::set<int64_t> values = found == given.end() ? std::set<int64_t>() : found->second;
      if (member.kind == "enumeration") {
        ASSERT_GT(enumerator_count(op), 0) << op.name << " is not in the table of this test";
        for (int64_t value = 1; value <= enumerator_count(op); ++value) {
          EXPECT_TRUE(values.contains(value)) << op.name << " " << member.name << " " << value;
        }
      } else if (member.kind == "i32" && !is_count(member.name)) {
        EXPECT_EQ(values, (std::set<int64_t>{0, 1})) << op.name << " " << member.name;
      }
    }
  }
}

TEST(OpRows, GiveAndLeaveOutEveryOptionalTensor) {
  const Given given = given_by_rows();
  for (const OpInfo& op : all_ops()) {
    for (const FrameMember& member : op.members) {
      if (!member.kind.ends_with("_opt") && !member.has_scalar()) continue;
      const auto found = given.find({op.id, member.name});
      ASSERT_NE(found, given.end()) << op.name << " " << member.name;
      EXPECT_EQ(found->second, (std::set<int64_t>{0, 1})) << op.name << " " << member.name;
    }
  }
}

}  // namespace
}  // namespace bp::conformance
