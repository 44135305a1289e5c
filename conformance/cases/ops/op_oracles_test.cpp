// That the class which the spec gives an op selects how its results are judged.
#include "conformance/cases/ops/op_oracles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {
namespace {

// ---- judged_by() ----------------------------------------------------------------------------- //

OpCase two_elements(bp_dtype dtype) {
  OpCase made = make_case(BP_OP_NEG, dtype, "random", "2", "dense");
  made.input("x", dtype, {2}, kRandom).output("y", dtype, {2});
  return made;
}

// Each source of bounds gives numbers of its own.
Known all_known() {
  Known known;
  known.outputs.emplace_back().value = {DoubleDouble(1), DoubleDouble(2)};
  known.sums = [] { return Sums{{{10, 11}}, {{20, 21}}}; };
  known.propagated = [] { return Bounds{{30, 31}}; };
  known.formula = [](BoundRule rule) {
    const double number = 100.0 * static_cast<double>(rule);
    return Bounds{{number, number}};
  };
  known.is_tied = [](int64_t, DoubleDouble) { return true; };
  return known;
}

Expected judge_two(Judgement judgement, const Known& known, bp_dtype dtype = BP_F32) {
  const OpCase op_case = two_elements(dtype);
  return judged_by(judgement, CallData(op_case, 1), known).at(0);
}

TEST(Judged, TakesTheBoundThatTheClassSelects) {
  const auto bound = [](BoundRule rule) { return judge_two({.bound = rule}, all_known()).bound; };
  EXPECT_TRUE(bound(BoundRule::kExact).empty());
  EXPECT_TRUE(bound(BoundRule::kChosen).empty());
  EXPECT_EQ(bound(BoundRule::kSum), (std::vector<double>{10, 11}));
  EXPECT_EQ(bound(BoundRule::kPropagated), (std::vector<double>{30, 31}));
  for (const BoundRule rule : {BoundRule::kPrimitive, BoundRule::kFunction, BoundRule::kSoftmax,
                               BoundRule::kLogSoftmax, BoundRule::kNorm, BoundRule::kAttention}) {
    EXPECT_EQ(bound(rule), std::vector<double>(2, 100.0 * static_cast<double>(rule)));
  }
}

TEST(Judged, TakesTheMagnitudesOfSumsAlone) {
  EXPECT_EQ(judge_two({.bound = BoundRule::kSum}, all_known()).magnitude,
            (std::vector<double>{20, 21}));
  EXPECT_TRUE(judge_two({.bound = BoundRule::kPropagated}, all_known()).magnitude.empty());
}

TEST(Judged, AddsTheSmallestNormalToAFunctionWithoutAFormula) {
  Known known = all_known();
  known.formula = nullptr;
  const double smallest = float_format(BP_F16)->smallest_normal();
  EXPECT_EQ(judge_two({.bound = BoundRule::kFunction}, known, BP_F16).bound,
            (std::vector<double>{30 + smallest, 31 + smallest}));
}

TEST(Judged, ChecksZerosAndBiasWhereTheClassDoes) {
  for (const bool is_checked : {false, true}) {
    const Expected zero = judge_two({.checks_zero = is_checked}, all_known());
    EXPECT_EQ(zero.sign_of_zero, is_checked);
    EXPECT_FALSE(zero.checks_bias);
    const Expected bias = judge_two({.checks_bias = is_checked}, all_known());
    EXPECT_EQ(bias.checks_bias, is_checked);
    EXPECT_FALSE(bias.sign_of_zero);
  }
  Known known = all_known();
  known.is_one_sided = true;
  EXPECT_FALSE(judge_two({.checks_bias = true}, known).checks_bias);
}

TEST(Judged, AddsWhatTheCallBringsToEveryClass) {
  Known known = all_known();
  known.carried = {{1, 2}};
  EXPECT_EQ(judge_two({}, known).bound, (std::vector<double>{1, 2}));
  EXPECT_EQ(judge_two({.bound = BoundRule::kSum}, known).bound, (std::vector<double>{11, 13}));
  EXPECT_FALSE(judge_two({.checks_bias = true}, known).checks_bias);
  known.carried = {{0, 0}};
  EXPECT_TRUE(judge_two({}, known).bound.empty());
  EXPECT_TRUE(judge_two({.checks_bias = true}, known).checks_bias);
}

TEST(Judged, LetsTiesPassForChosenElementsAlone) {
  EXPECT_TRUE(judge_two({.bound = BoundRule::kChosen}, all_known()).also_right);
  EXPECT_FALSE(judge_two({.bound = BoundRule::kExact}, all_known()).also_right);
}

TEST(Judged, HasNoBoundForIntegers) {
  const Judgement judgement{.bound = BoundRule::kSum, .checks_zero = true, .checks_bias = true};
  Known known = all_known();
  known.sums = nullptr;
  const Expected expected = judge_two(judgement, known, BP_I32);
  EXPECT_TRUE(expected.bound.empty());
  EXPECT_FALSE(expected.sign_of_zero || expected.checks_bias);
}

TEST(Judged, RefusesAClassOfWhichTheOracleKnowsNothing) {
  Known known;
  known.outputs.emplace_back().value = {DoubleDouble(1), DoubleDouble(2)};
  for (const BoundRule rule : {BoundRule::kSum, BoundRule::kPropagated, BoundRule::kFunction,
                               BoundRule::kPrimitive, BoundRule::kSoftmax, BoundRule::kNorm}) {
    EXPECT_THROW(judge_two({.bound = rule}, known), std::logic_error);
  }
  EXPECT_NO_THROW(judge_two({.bound = BoundRule::kExact}, known));
}

// ---- The ops of the spec --------------------------------------------------------------------- //

// What all rows of an op show of its judgement. Rows of other classes would show something else.
struct Shown {
  bool has_bound = false;            // In some row.
  bool follows_accumulator = false;  // The bound of some row grows if sums are narrower.
  bool checks_zero = true;           // In all rows.
  bool checks_bias = false;          // In some row.
  bool operator==(const Shown&) const = default;
};

std::string text_of(const Shown& shown) {
  return std::string(shown.has_bound ? "a bound" : "no bound") +
         (shown.follows_accumulator ? " of sums" : "") +
         (shown.checks_zero ? ", the sign of zero" : "") + (shown.checks_bias ? ", bias" : "");
}

// The classes, as docs/error_classes.md explains them. X is exact or propagated, by its op.
const std::map<std::string_view, Shown>& shown_by_class() {
  static const std::map<std::string_view, Shown> all = {
      {"E0", {false, false, true, false}},  {"E1", {false, false, true, true}},
      {"E1d", {true, false, true, false}},  {"E2", {true, false, false, false}},
      {"E2c", {true, false, false, false}}, {"P", {true, false, false, false}},
      {"R1", {true, true, false, true}},    {"R2", {true, true, false, true}},
      {"R3", {false, false, true, false}},  {"R4", {true, false, false, false}},
      {"R4L", {true, false, false, false}}, {"R5", {true, false, false, false}},
      {"R6", {true, true, false, false}},
  };
  return all;
}

// A scalar that the compute type rounds brings an error of its own, whatever the class.
bool brings_an_error(const OpCase& row) {
  return std::ranges::any_of(row.attributes, [](const Attribute& attribute) {
    const auto* scalar = std::get_if<bp_scalar>(&attribute.value);
    if (scalar == nullptr) return false;
    const double value = scalar_value(*scalar).hi;
    return round_to(BP_F32, value) != value;
  });
}

bool has_bound(const Expected& expected) {
  return std::ranges::any_of(expected.bound, [](double bound) { return bound > 0; });
}

// Infinite terms have bounds that are no numbers.
bool has_same_bounds(const Expected& a, const Expected& b) {
  return std::ranges::equal(a.bound, b.bound, [](double x, double y) {
    return x == y || (std::isnan(x) && std::isnan(y));
  });
}

// Under relaxed math, so that div and sqrt have bounds too.
void look_at(const OpCase& row, Shown& shown) {
  const CallData data(row, 7);
  Numerics numerics{.relaxed = true}, narrow{.accumulator = 0x1p-20, .relaxed = true};
  const std::vector<Expected> usual = row.reference(data, numerics);
  const std::vector<Expected> other = row.reference(data, narrow);
  size_t i = 0;
  for (const HostTensor& tensor : data.tensors()) {
    if (tensor.role == Role::kInput) continue;
    const Expected& expected = usual.at(i);
    if (is_float(tensor.dtype)) {
      shown.has_bound = shown.has_bound || has_bound(expected);
      shown.follows_accumulator = shown.follows_accumulator || !has_same_bounds(expected, other[i]);
      shown.checks_zero = shown.checks_zero && expected.sign_of_zero;
      shown.checks_bias = shown.checks_bias || expected.checks_bias;
    }
    ++i;
  }
}

// By op, from the small rows of f32.
std::map<uint32_t, Shown> shown_by_rows() {
  std::map<uint32_t, Shown> shown;
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (const OpCase& row : rows) {
      if (row.dtype != "f32" || row.fails_on_device || brings_an_error(row)) continue;
      const bool is_small = std::ranges::all_of(row.tensors, [](const TensorArgument& argument) {
        return element_count(argument.shape) <= 2000;
      });
      if (is_small) look_at(row, shown[row.op]);
    }
  }
  return shown;
}

// Returns whether a dtype rule of ops.def, such as "like(x)" or "float", may be f32.
bool may_be_f32(const OpInfo& op, std::string_view rule) {
  for (const std::string_view function : {"like(", "acc(", "sum("}) {
    if (!rule.starts_with(function)) continue;
    rule.remove_prefix(function.size());
    return may_be_f32(op, op.member(rule.substr(0, rule.size() - 1)).dtype);
  }
  return rule == "any" || rule.find("f32") != rule.npos || rule.find("float") != rule.npos;
}

// Indices, conditions and bits have no error.
bool has_float_results(const OpInfo& op) {
  return std::ranges::any_of(op.members, [&](const FrameMember& member) {
    return (member.kind.starts_with("out") || member.kind.starts_with("inout")) &&
           may_be_f32(op, member.dtype);
  });
}

TEST(OpClasses, JudgeEveryOpOfTheSpec) {
  // Right results of these err to one side: equal elements round alike, so does one logarithm, and
  // the results of a scan or of a transform share the errors of sums and factors.
  const std::set<std::string_view> one_sided = {"adaptive_avg_pool_backward",
                                                "avg_pool_backward",
                                                "cumprod",
                                                "cumsum",
                                                "fft",
                                                "ifft",
                                                "irfft",
                                                "logcumsumexp",
                                                "logsumexp",
                                                "rfft"};
  const std::map<uint32_t, Shown> found = shown_by_rows();
  for (const OpInfo& op : all_ops()) {
    // Rows of quantised ops are named after the packed dtype, and there is none of f32.
    if (op.numerics == "X" || op.profile == "quantized") continue;
    if (!has_float_results(op)) continue;
    ASSERT_TRUE(found.contains(op.id)) << op.name;
    ASSERT_TRUE(shown_by_class().contains(op.numerics)) << op.name << " " << op.numerics;
    Shown wanted = shown_by_class().at(op.numerics);
    if (one_sided.contains(op.name)) wanted.checks_bias = false;
    const Shown& shown = found.at(op.id);
    EXPECT_EQ(shown, wanted) << op.name << " of class " << op.numerics << " shows "
                             << text_of(shown) << ", not " << text_of(wanted);
  }
}

TEST(OpClasses, PropagateToRandomNumbersWhatTheirStepsErr) {
  const std::map<uint32_t, Shown> found = shown_by_rows();
  const std::set<std::string_view> exact = {"uniform", "bernoulli"};
  for (const OpInfo& op : all_ops()) {
    if (op.numerics != "X" || !has_float_results(op)) continue;
    EXPECT_EQ(found.at(op.id).has_bound, !exact.contains(op.name)) << op.name;
    EXPECT_FALSE(found.at(op.id).checks_bias || found.at(op.id).checks_zero) << op.name;
  }
}

// The rules of one row of results have formulas of their own.
TEST(OpClasses, JudgeLinesByTheFormulaOfTheClass) {
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (const OpCase& row : rows) {
      const bool is_log = row.op == BP_OP_LOG_SOFTMAX;
      if (row.dtype != "f32" || row.detail != "17_axis0") continue;
      if (!is_log && row.op != BP_OP_SOFTMAX) continue;
      const CallData data(row, 7);
      const Expected expected = row.reference(data, Numerics{}).at(0);
      std::vector<double> x, r;
      for (size_t i = 0; i < expected.value.size(); ++i) {
        x.push_back(data.tensor("x").data[i].hi);
        r.push_back(expected.value[i].hi);
      }
      EXPECT_EQ(expected.bound,
                is_log ? log_softmax_bounds(x, r, BP_F32) : softmax_bounds(x, r, BP_F32));
    }
  }
}

}  // namespace
}  // namespace bp::conformance
