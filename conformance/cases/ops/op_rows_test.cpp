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

// Returns the last value of each enumeration.
const std::map<std::pair<std::string_view, std::string_view>, int64_t>& last_values() {
  static const std::map<std::pair<std::string_view, std::string_view>, int64_t> values = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule)
#define BP_LAST_VALUE(op, member, value) {{#op, #member}, value},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  };
  return values;
}

bool is_count(std::string_view member) { return member == "axis" || member.ends_with("_ndim"); }

TEST(OpRows, GiveEveryValueOfEnumerationsAndFlags) {
  const Given given = given_by_rows();
  for (const OpInfo& op : all_ops()) {
    for (const FrameMember& member : op.members) {
      const auto found = given.find({op.id, member.name});
      const std::set<int64_t> values = found == given.end() ? std::set<int64_t>() : found->second;
      if (member.kind == "enumeration") {
        // Rows that do not say a value give 0, the first value of some enumerations.
        for (int64_t value = 1; value <= last_values().at({op.name, member.name}); ++value) {
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
