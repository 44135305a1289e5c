// Tests that each candidate is simpler, so that shrinking ends, and that it ends at a small call.
#include "conformance/shrink/candidates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/selection.hpp"
#include "conformance/shrink/changed_case.hpp"
#include "conformance/shrink/shrinker.hpp"

namespace bp::conformance {
namespace {

// Returns rows of each op: the first of tier smoke, and the rows of other layouts and ranks behind
// it.
OpCases sample() {
  constexpr size_t kEachOp = 2;
  OpCases rows, chosen;
  for (const OpFamily& family : op_families()) family.add(rows);
  std::map<uint32_t, std::set<std::string>> seen;
  for (OpCase& row : rows) {
    if (row.dtype != "f32" || !follows_call(row)) continue;
    std::set<std::string>& kinds = seen[row.op];
    size_t axes = 0;
    for (const TensorArgument& argument : row.tensors) axes += argument.shape.size();
    const std::string kind = row.layout + std::to_string(axes) + (row.derive ? "d" : "");
    if (kinds.size() < kEachOp && kinds.insert(kind).second) chosen.push_back(std::move(row));
  }
  return chosen;
}

std::vector<Expected> any_answer(const CallData&, const Numerics&) { return {}; }

double size_of(const Shape& shape) {
  return static_cast<double>(std::accumulate(shape.begin(), shape.end(), int64_t{0}));
}

// Returns a number that is larger for data that are less plain.
double size_of(const TensorArgument& argument) {
  const Fill& fill = argument.fill;
  const bool is_one_number = fill.low == fill.high || std::isnan(fill.low);
  if (fill.kind == FillKind::kUniform && is_one_number) return -1;
  switch (argument.fill.kind) {
    case FillKind::kOneHot:
      return 0;
    case FillKind::kCoord:
      return 1;
    case FillKind::kExactDense:
      return 2;
    case FillKind::kIndex:
      return argument.fill.high;
    default:
      return 3;
  }
}

double size_of(const Attribute& attribute) {
  if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
    return *integer < 0 ? 2 - static_cast<double>(*integer) : static_cast<double>(*integer);
  }
  if (const auto* number = std::get_if<double>(&attribute.value)) {
    return *number == 0 ? 0 : *number == 1 ? 1 : 2;
  }
  if (const auto* list = std::get_if<Shape>(&attribute.value)) return size_of(*list);
  return 0;
}

// Returns the sizes that no candidate may make larger.
std::vector<double> parts_of(const OpCase& call) {
  std::vector<double> parts;
  for (const TensorArgument& argument : call.tensors) {
    parts.push_back(argument.layout == Layout::kDense ? 0 : 1);
    if (argument.role == Role::kOutput) continue;
    parts.push_back(size_of(argument.shape));
    parts.push_back(static_cast<double>(argument.shape.size()));
    parts.push_back(size_of(argument));
  }
  for (const Attribute& attribute : call.attributes) parts.push_back(size_of(attribute));
  return parts;
}

double outputs_of(const OpCase& call) {
  double sum = 0;
  for (const TensorArgument& argument : call.tensors) {
    if (argument.role != Role::kOutput) continue;
    sum += size_of(argument.shape) + static_cast<double>(argument.shape.size());
  }
  return sum;
}

// Returns whether nothing is larger and something is smaller. Outputs follow from the rest: they
// may grow if another part, such as a stride, shrinks, and they count if nothing else changes.
bool is_simpler(const OpCase& candidate, const OpCase& current) {
  const std::vector<double> less = parts_of(candidate), more = parts_of(current);
  bool is_smaller = false;
  for (size_t i = 0; i < less.size(); ++i) {
    if (less[i] > more[i]) return false;
    is_smaller = is_smaller || less[i] < more[i];
  }
  return is_smaller || outputs_of(candidate) < outputs_of(current);
}

TEST(Candidates, AreSimplerLegalAndDifferent) {
  size_t count = 0;
  for (const OpCase& call : sample()) {
    const std::string text = describe_call(call).dump();
    std::set<std::string> seen = {text};
    for (const OpCase& candidate : simpler_calls(call)) {
      ++count;
      const std::string changed = describe_call(candidate).dump();
      EXPECT_TRUE(is_simpler(candidate, call)) << call.id() << "\n" << text << "\n" << changed;
      EXPECT_TRUE(HostCall(candidate).is_legal()) << call.id() << "\n" << changed;
      EXPECT_TRUE(seen.insert(changed).second) << call.id() << " comes twice: " << changed;
    }
  }
  EXPECT_GT(count, 1000u);
}

TEST(Candidates, CanBeTakenUntilNoneIsLeft) {
  OpCases rows = sample();
  for (size_t i = 0; i < rows.size(); i += 5) {
    size_t steps = 0;
    // The backend fails every call.
    const OpCase smallest =
        shrink_call(rows[i], 500, [&](const OpCases& calls) -> std::optional<size_t> {
          if (calls.empty()) return std::nullopt;
          ++steps;
          return 0;
        });
    EXPECT_LT(steps, 500u) << rows[i].id();
    EXPECT_TRUE(simpler_calls(smallest).empty()) << rows[i].id();
  }
}

TEST(Candidates, LeaveWhatTheOracleHoldsOfItsOwn) {
  OpCase add = make_case(BP_OP_ADD, BP_F32, "", "", "");
  add.input("a", BP_F32, {8, 4}, kRandom, Layout::kTransposed).input("b", BP_F32, {8, 4}, kRandom);
  add.output("y", BP_F32, {8, 4});
  const auto keeps_shapes = [&](const OpCase& call) {
    return std::ranges::all_of(simpler_calls(call), [&](const OpCase& candidate) {
      return std::ranges::equal(candidate.tensors, call.tensors, {}, &TensorArgument::shape,
                                &TensorArgument::shape);
    });
  };
  add.reference = any_answer;
  EXPECT_TRUE(follows_call(add));
  EXPECT_TRUE(follows_shapes(add));
  EXPECT_FALSE(keeps_shapes(add));
  OpCase derived = add;
  derived.derive = [](CallData&) {};
  EXPECT_TRUE(follows_call(derived));
  EXPECT_FALSE(follows_shapes(derived));
  EXPECT_TRUE(keeps_shapes(derived));
  EXPECT_FALSE(simpler_calls(derived).empty()) << "layouts and data may change";
  OpCase captured = add;
  captured.reference = [shape = Shape{8, 4}](const CallData&, const Numerics&) {
    return std::vector<Expected>(shape.size());
  };
  EXPECT_FALSE(follows_call(captured));
  EXPECT_TRUE(keeps_shapes(captured));
}

TEST(Candidates, KeepIndicesInsideOfWhatHasShrunk) {
  OpCase embedding = make_case(BP_OP_EMBEDDING, BP_F32, "", "", "");
  embedding.input("weight", BP_F32, {100, 8}, kRandom);
  embedding.input("indices", BP_I64, {5}, index_fill(100)).output("y", BP_F32, {5, 8});
  embedding.reference = any_answer;
  size_t shrunk = 0;
  for (const OpCase& candidate : simpler_calls(embedding)) {
    const double rows = static_cast<double>(candidate.tensors[0].shape[0]);
    EXPECT_LE(candidate.tensors[1].fill.high, rows) << describe_call(candidate).dump();
    EXPECT_LT(candidate.tensors[1].fill.low, candidate.tensors[1].fill.high);
    EXPECT_EQ(candidate.tensors[1].fill.kind, FillKind::kIndex);
    shrunk += rows < 100;
  }
  EXPECT_GT(shrunk, 3u);
}

TEST(Candidates, ChangeEqualExtentsTogether) {
  OpCase matmul = make_case(BP_OP_MATMUL, BP_F32, "", "", "");
  matmul.input("a", BP_F32, {6, 40}, kRandom).input("b", BP_F32, {40, 7}, kRandom);
  matmul.output("y", BP_F32, {6, 7}).reference = any_answer;
  const auto has = [&](const Shape& a, const Shape& b, const Shape& y) {
    return std::ranges::any_of(simpler_calls(matmul), [&](const OpCase& call) {
      return call.tensors[0].shape == a && call.tensors[1].shape == b && call.tensors[2].shape == y;
    });
  };
  for (const int64_t k : {1, 2, 10, 20, 30, 39}) EXPECT_TRUE(has({6, k}, {k, 7}, {6, 7})) << k;
  EXPECT_TRUE(has({1, 40}, {40, 7}, {1, 7}));
  EXPECT_FALSE(has({6, 0}, {0, 7}, {6, 7})) << "an empty product fails for another reason";
}

TEST(Candidates, GiveAnAliasTheShapeAndTheLayoutOfItsOriginal) {
  OpCase add = make_case(BP_OP_ADD, BP_F32, "", "", "");
  add.input("a", BP_F32, {4, 6}, kRandom, Layout::kSliced);
  add.input("b", BP_F32, {4, 6}, kRandom).output("y", BP_F32, {4, 6}, Layout::kSliced);
  add.tensors[2].alias = "a";
  add.reference = any_answer;
  const std::vector<OpCase> candidates = simpler_calls(add);
  EXPECT_GT(candidates.size(), 4u);
  for (const OpCase& candidate : candidates) {
    EXPECT_EQ(candidate.tensors[2].shape, candidate.tensors[0].shape);
    EXPECT_EQ(candidate.tensors[2].layout, candidate.tensors[0].layout);
  }
}

TEST(Candidates, OfNoDataAreNotExact) {
  OpCase add = make_case(BP_OP_ADD, BP_F32, "", "", "");
  add.is_exact = true;
  add.input("a", BP_F32, {4}, kSpecial).input("b", BP_F32, {4}, kSpecial);
  add.output("y", BP_F32, {4}).reference = any_answer;
  for (const OpCase& candidate : simpler_calls(add)) {
    const bool has_other_data =
        std::ranges::any_of(candidate.tensors, [](const TensorArgument& argument) {
          return argument.role == Role::kInput && argument.fill.kind != FillKind::kSpecial;
        });
    EXPECT_EQ(candidate.is_exact, !has_other_data) << describe_call(candidate).dump();
  }
}

TEST(ShrinkCall, TakesNoMoreStepsThanAllowedAndTheFirstThatFails) {
  OpCase add = make_case(BP_OP_ADD, BP_F32, "", "", "");
  add.input("a", BP_F32, {64}, kRandom).input("b", BP_F32, {64}, kRandom);
  add.output("y", BP_F32, {64}).reference = any_answer;
  size_t asked = 0;
  const FindFailing always = [&](const OpCases&) {
    ++asked;
    return std::optional<size_t>(0);
  };
  const OpCase once = shrink_call(add, 1, always);
  EXPECT_EQ(asked, 1u);
  EXPECT_EQ(describe_call(once), describe_call(simpler_calls(add).front()));
  EXPECT_EQ(describe_call(shrink_call(add, 0, always)), describe_call(add));
  asked = 0;
  const FindFailing never = [&](const OpCases&) {
    ++asked;
    return std::optional<size_t>();
  };
  EXPECT_EQ(describe_call(shrink_call(add, 100, never)), describe_call(add));
  EXPECT_EQ(asked, 1u) << "where no simpler call fails, there is nothing more to try";
}

// The cause must match too, because a smaller call that fails in another way is another failure.
TEST(ShrinkCall, KeepsTheCauseOfTheFailure) {
  OpCase add = make_case(BP_OP_ADD, BP_F32, "", "", "");
  add.input("a", BP_F32, {64}, kRandom).input("b", BP_F32, {64}, kRandom);
  add.output("y", BP_F32, {64}).reference = any_answer;
  // The kernel loses the tail of long rows, and is wrong in another way for short rows.
  const auto result_of = [](const OpCase& call) {
    const int64_t extent = call.tensors[2].shape.empty() ? 1 : call.tensors[2].shape[0];
    return Result{.outcome = Outcome::kFail, .cause = extent >= 9 ? "tail" : "canary"};
  };
  const Result first = result_of(add);
  const OpCase small = shrink_call(add, 1000, [&](const OpCases& calls) {
    const auto found = std::ranges::find_if(
        calls, [&](const OpCase& call) { return is_same_failure(first, result_of(call)); });
    return found == calls.end() ? std::nullopt
                                : std::optional(static_cast<size_t>(found - calls.begin()));
  });
  EXPECT_EQ(small.tensors[2].shape, Shape{9});
}

// One NaN at place 24 fails. The shape can shrink below 25 only if all elements become NaN.
TEST(ShrinkCall, GoesOnBelowThePlaceOfOneBadValue) {
  OpCase relu = make_case(BP_OP_RELU, BP_F32, "special", "", "");
  relu.input("x", BP_F32, {51}, kSpecial);
  relu.output("y", BP_F32, {51}).reference = any_answer;
  const OpCase small = shrink_call(relu, 1000, [&](const OpCases& calls) -> std::optional<size_t> {
    for (size_t i = 0; i < calls.size(); ++i) {
      const CallData data(calls[i], 1);
      if (std::ranges::any_of(data.tensor("x").data, [](DoubleDouble v) { return isnan(v); })) {
        return i;
      }
    }
    return std::nullopt;
  });
  EXPECT_TRUE(small.tensors[0].shape.empty()) << shape_text(small.tensors[0].shape);
  EXPECT_TRUE(std::isnan(small.tensors[0].fill.low));
  const OpCase again = changed_case(relu, describe_call(small));
  EXPECT_TRUE(isnan(CallData(again, 1).tensor("x").data[0])) << "the file of shrink keeps it";
}

TEST(Failures, OfWrongValuesAreOneKind) {
  const auto wrong = [](const char* cause) {
    return Result{.outcome = Outcome::kFail, .message = "m", .cause = cause};
  };
  EXPECT_TRUE(is_same_failure(wrong("tail"), wrong("values")));
  EXPECT_TRUE(is_same_failure(wrong("values"), wrong("nan")));
  EXPECT_FALSE(is_same_failure(wrong("values"), wrong("canary")));
  EXPECT_FALSE(is_same_failure(wrong("stride"), wrong("values")));
}

TEST(Failures, OfADeathAreToldApartByTheirPhaseAlone) {
  const auto death = [](const char* message, Outcome outcome = Outcome::kCrash) {
    return Result{.outcome = outcome, .message = message, .cause = "crash"};
  };
  const Result plain = death("died of signal 11 (SIGSEGV)");
  EXPECT_TRUE(is_same_failure(plain, death("the process exited with code 3")));
  EXPECT_FALSE(is_same_failure(plain, death("died of signal 11 (SIGSEGV), in phase verify")));
  EXPECT_TRUE(is_same_failure(death("a, in phase launch 1; b"), death("c, in phase launch; d")));
  EXPECT_FALSE(is_same_failure(plain, death("died of signal 11 (SIGSEGV)", Outcome::kTimeout)));
  const Result fail{.outcome = Outcome::kFail, .message = "in phase a", .cause = "tail"};
  Result other = fail;
  other.message = "in phase b";
  EXPECT_TRUE(is_same_failure(fail, other)) << "the message of a wrong result may differ";
}

// ---- Changed cases --------------------------------------------------------------------------- //

OpCase plain_matmul() {
  OpCase matmul = make_case(BP_OP_MATMUL, BP_F32, "", "", "");
  matmul.input("a", BP_F32, {3, 4}, kRandom).input("b", BP_F32, {4, 5}, kRandom);
  matmul.output("y", BP_F32, {3, 5}).reference = any_answer;
  return matmul;
}

std::string refusal_of(const OpCase& base, const nlohmann::json& description) {
  try {
    static_cast<void>(changed_case(base, description));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(ChangedCases, SayWhatIsWrongInEachPart) {
  const OpCase base = plain_matmul();
  const nlohmann::json right = describe_call(base);
  EXPECT_EQ(refusal_of(base, right), "");
  const auto expect = [&](const char* pointer, const nlohmann::json& value, const char* words) {
    nlohmann::json wrong = right;
    wrong[nlohmann::json::json_pointer(pointer)] = value;
    const std::string text = refusal_of(base, wrong);
    EXPECT_NE(text.find(words), std::string::npos) << pointer << ": \"" << text << "\"";
  };
  expect("/tensors/0/name", "b", "tensor \"b\" stands where \"a\" is expected");
  expect("/tensors/0/layout", "round", "\"round\" is no layout");
  expect("/tensors/0/layout", 7, "type must be string");
  expect("/tensors/0/fill/0", 99, "fill 99 is not known");
  expect("/tensors/0/fill/0", -1, "fill -1 is not known");
  expect("/tensors/0/fill/0", 3.7, "the number 3.7 stands where an integer is expected");
  expect("/tensors/0/fill/0", true, "true stands where an integer is expected");
  expect("/tensors/0/fill", nlohmann::json::array(), "array index 0");
  expect("/tensors/0/shape", {3, -4}, "shape 3x-4 is not allowed");
  expect("/tensors/0/shape", {3, 5}, "makes no legal call: ");
  expect("/tensors/0/shape", "3x4", "a text stands where a list of integers is expected");
  expect("/tensors/3", {{"name", "more"}}, "has 4 tensors; the case has 3");
  expect("/tensors", 7, "has 1 tensors; the case has 3");
}

TEST(ChangedCases, AreExactOnlyWithTheDataOfTheirCase) {
  OpCase base = plain_matmul();
  base.is_exact = true;
  nlohmann::json description = describe_call(base);
  EXPECT_TRUE(changed_case(base, description).is_exact);
  description["tensors"][1]["fill"][2] = 0.5;
  EXPECT_FALSE(changed_case(base, description).is_exact);
}

TEST(ChangedCases, KeepEachKindOfAttribute) {
  OpCase norm = make_case(BP_OP_LAYER_NORM, BP_F32, "", "", "");
  norm.input("x", BP_F32, {2, 3}, kRandom).output("y", BP_F32, {2, 3});
  norm.output("mean", BP_F32, {2}).output("rstd", BP_F32, {2});
  norm.set("normalized_ndim", int64_t{1}).set("eps", 1e-5);
  const OpCase back = changed_case(norm, describe_call(norm));
  EXPECT_EQ(std::get<int64_t>(back.attributes[0].value), 1);
  EXPECT_EQ(std::get<double>(back.attributes[1].value), 1e-5) << "to the last bit";
  nlohmann::json without = describe_call(norm);
  without["attributes"].erase("eps");
  EXPECT_NE(refusal_of(norm, without).find("eps"), std::string::npos);
  nlohmann::json wrapping = describe_call(norm);
  wrapping["attributes"]["normalized_ndim"] = UINT64_MAX;  // As an int64_t it would be -1.
  EXPECT_EQ(refusal_of(norm, wrapping),
            "the number 18446744073709551615 stands where an integer up to 2^63 - 1 is expected");

  OpCase fill = make_case(BP_OP_FILL, BP_F32, "", "", "");
  fill.output("y", BP_F32, {5}).set("value", float_scalar(-0.5));
  const auto scalar =
      std::get<bp_scalar>(changed_case(fill, describe_call(fill)).attributes[0].value);
  EXPECT_EQ(scalar.dtype, float_scalar(-0.5).dtype);
  EXPECT_EQ(scalar.bits, float_scalar(-0.5).bits);
}

TEST(ChangedCases, RefuseBitsThatAreNoCount) {
  OpCase fill = make_case(BP_OP_FILL, BP_F32, "", "", "");
  fill.output("y", BP_F32, {5}).set("value", float_scalar(-0.5));
  for (const char* bits : {"1.5", "-1", "true", "\"1\"", "18446744073709551616"}) {
    nlohmann::json wrong = describe_call(fill);
    wrong["attributes"]["value"]["bits"] = nlohmann::json::parse(bits);
    const std::string text = refusal_of(fill, wrong);
    EXPECT_TRUE(text.starts_with("attribute \"value\": \"bits\" is ")) << bits << ": " << text;
  }
  nlohmann::json number = describe_call(fill);
  number["attributes"]["value"] = 7;
  EXPECT_NE(refusal_of(fill, number).find("not a JSON object, but the number 7"), std::string::npos)
      << refusal_of(fill, number);
}

TEST(InferredOutputs, FollowTheInputs) {
  OpCase matmul = plain_matmul();
  matmul.tensors[0].shape = {7, 4};
  infer_outputs(matmul);
  EXPECT_EQ(matmul.tensors[2].shape, (Shape{7, 5}));
  matmul.tensors[0].shape = {7, 9};  // The shapes make no product.
  infer_outputs(matmul);
  EXPECT_EQ(matmul.tensors[2].shape, (Shape{7, 5})) << "an illegal call infers nothing";
}

TEST(MadeCases, NameACaseOfTheSuite) {
  const CaseList none(std::vector<Case>{});
  for (const nlohmann::json& description :
       {nlohmann::json::object(), nlohmann::json::array(), nlohmann::json{{"case", "op.add"}}}) {
    EXPECT_THROW(static_cast<void>(make_changed_case(none, description)), UsageError)
        << description;
  }
}

}  // namespace
}  // namespace bp::conformance
