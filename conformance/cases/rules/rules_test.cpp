// Tests the rules by which every op gets its rows.
#include "conformance/cases/rules/rules.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {
namespace {

OpCases by_rule(void (*add)(OpCases&)) {
  OpCases rows;
  add(rows);
  const size_t given = rows.size();
  add_rows_by_rule(rows);
  return {rows.begin() + static_cast<ptrdiff_t>(given), rows.end()};
}

TEST(Rules, EveryPairOfLayoutsIsMet) {
  std::set<std::pair<Layout, Layout>> pairs;
  std::set<Layout> outputs;
  for (const OpCase& row : by_rule(add_matrix)) {
    if (row.op != BP_OP_MATMUL || row.dtype != "f32") continue;
    const Layout a = row.tensors[0].layout, b = row.tensors[1].layout;
    // With two axes, the permuted layout is the transposed one.
    if (a != Layout::kPermuted && b != Layout::kPermuted) pairs.insert({a, b});
    outputs.insert(row.tensors[2].layout);
  }
  EXPECT_EQ(pairs.size(), 10u * 10u);
  EXPECT_EQ(outputs.size(), 8u);  // These are the layouts without shared elements.
}

TEST(Rules, OutputsNeverShareElements) {
  for (auto* add : {add_unary, add_matrix, add_loss, add_optimizer}) {
    for (const OpCase& row : by_rule(add)) {
      EXPECT_TRUE(HostCall(row).is_legal()) << row.id();
      for (const TensorArgument& argument : row.tensors) {
        EXPECT_FALSE(argument.role != Role::kInput && is_broadcast(argument.layout)) << row.id();
      }
    }
  }
}

// A saved result has one element for each row. Rows of x that share their memory still share it,
// and the saved result never does.
TEST(Rules, DerivedDataStayAsTheyAre) {
  int seen = 0;
  for (const OpCase& row : by_rule(add_loss)) {
    if (row.op != BP_OP_CROSS_ENTROPY_BACKWARD) continue;
    for (const TensorArgument& argument : row.tensors) {
      if (argument.name != "lse") continue;
      EXPECT_FALSE(is_broadcast(argument.layout)) << row.id();
      ++seen;
    }
  }
  EXPECT_GT(seen, 20);
}

TEST(Rules, ElementsThatShareMemoryHaveOneValue) {
  for (auto* add : {add_binary, add_matrix, add_embedding}) {
    for (const OpCase& row : by_rule(add)) {
      if (row.fails_on_device || row.dtype != "f32") continue;
      const CallData data(row, 3);
      for (size_t i = 0; i < row.tensors.size(); ++i) {
        if (!is_broadcast(row.tensors[i].layout)) continue;
        const Shape& shape = row.tensors[i].shape;
        const Placement placement = place(row.tensors[i].layout, shape);
        std::map<int64_t, double> values;
        for (int64_t k = 0; k < element_count(shape); ++k) {
          const double value = data.tensors()[i].data[static_cast<size_t>(k)].hi;
          const auto [at, is_new] = values.emplace(element_offset(placement, shape, k), value);
          EXPECT_TRUE(at->second == value || std::isnan(value)) << row.id();
        }
      }
    }
  }
}

TEST(Rules, ClassesDecideOnTheFills) {
  std::map<std::string, std::set<std::string>> fills;
  for (auto* add : {add_unary, add_binary, add_matrix, add_reduction}) {
    for (const OpCase& row : by_rule(add)) {
      fills[std::string(op_info(row.op).name) + "." + row.dtype].insert(row.fill);
    }
  }
  EXPECT_TRUE(fills["exp.f16"].contains("all_bits"));
  EXPECT_TRUE(fills["exp.f32"].contains("range"));
  EXPECT_TRUE(fills["mul.f64"].contains("special"));
  EXPECT_TRUE(fills["matmul.f32"].contains("exact_wide"));
  EXPECT_TRUE(fills["matmul.bf16"].contains("nonfinite"));
  EXPECT_TRUE(fills["sum.f32"].contains("positive"));
  EXPECT_FALSE(fills["amax.f32"].contains("exact_wide"));
}

// Each function of one number has a row with all values of 16 bits: each op, each approximation,
// each dtype of a conversion, and calls whose other operand is a number.
TEST(Rules, FunctionsOfOneNumberMeetAllBits) {
  std::set<std::string> ids;
  for (auto* add : {add_unary, add_binary, add_activation, add_movement}) {
    for (const OpCase& row : by_rule(add)) {
      if (row.fill == "all_bits") ids.insert(row.id());
    }
  }
  for (const char* id :
       {"op.exp.f16.all_bits.65536.dense", "op.isnan.bf16.all_bits.65536.dense",
        "op.gelu.f16.all_bits.65536_erf.dense", "op.gelu.bf16.all_bits.65536_tanh.dense",
        "op.leaky_relu.f16.all_bits.65536.scalar_slope_dense",
        "op.mul.bf16.all_bits.65536.scalar_b_dense", "op.copy.f16.all_bits.65536_to_f32.dense",
        "op.copy.bf16.all_bits.65536_to_u8.dense"}) {
    EXPECT_TRUE(ids.contains(id)) << id;
  }
  OpCases rows;
  add_unary(rows);
  for (const OpCase& row : rows) {
    const bool is_narrow = row.dtype == "f16" || row.dtype == "bf16";
    if (!is_narrow || row.tensors.size() != 2 || row.derive) continue;
    const std::string id = "op." + std::string(op_info(row.op).name) + "." + row.dtype;
    EXPECT_TRUE(ids.contains(id + ".all_bits.65536.dense")) << id;
  }
}

// The results are those of the spec where an integer holds the number, and open elsewhere.
TEST(Rules, ConversionsThatDoNotFitAreOpen) {
  int seen = 0;
  for (const OpCase& row : by_rule(add_movement)) {
    if (row.id() != "op.copy.f16.all_bits.65536_to_i8.dense") continue;
    const CallData data(row, 3);
    const Expected expected = row.reference(data, Numerics{}).at(0);
    for (const auto& [bits, is_open] : std::map<int64_t, bool>{
             {0x57f0, false}, {0x5800, true}, {0x7c00, true}, {0xfe01, true}, {0xd800, false}}) {
      EXPECT_EQ(expected.also_right(bits, DoubleDouble(77)), is_open) << bits;
    }
    ++seen;
  }
  EXPECT_EQ(seen, 1);
}

// exact_wide and is_exact promise that nothing is rounded, in any order.
TEST(Rules, ExactWideStaysExact) {
  int seen = 0;
  for (const OpCase& row : by_rule(add_matrix)) {
    if (row.fill != "exact_wide" || row.dtype != "f32") continue;
    const CallData data(row, 3);
    for (const Expected& expected : row.reference(data, Numerics{})) {
      for (const double magnitude : expected.magnitude) EXPECT_LT(magnitude, 0x1p24) << row.id();
    }
    ++seen;
  }
  EXPECT_GT(seen, 5);
}

TEST(Rules, MemoryIsSharedWhereTheOpAllowsIt) {
  std::set<std::string> layouts;
  for (const OpCase& row : by_rule(add_unary)) {
    if (row.op == BP_OP_RELU_BACKWARD) layouts.insert(row.layout);
  }
  EXPECT_TRUE(layouts.contains("inplace_grad_y_reversed"));
  EXPECT_TRUE(layouts.contains("inplace_y_transposed"));
  for (const OpCase& row : by_rule(add_matrix)) {
    EXPECT_FALSE(row.layout.starts_with("inplace")) << row.id();  // No factor may lie in the memory
                                                                  // of the product.
  }
}

}  // namespace
}  // namespace bp::conformance
