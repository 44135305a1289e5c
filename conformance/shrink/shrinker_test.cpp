#include "conformance/shrink/shrinker.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/selection.hpp"
#include "conformance/shrink/candidates.hpp"
#include "conformance/shrink/changed_case.hpp"

namespace bp::conformance {
namespace {

const CaseList& suite() { return CaseList::whole_suite(); }

const OpCase& op_case(const char* id) { return *suite().find(id)->op_case; }

constexpr const char* kMatmul = "op.matmul.f32.random.m31k65n9.dense";

std::optional<size_t> first_where(const std::vector<OpCase>& calls,
                                  const std::function<bool(const OpCase&)>& fails) {
  const auto found = std::ranges::find_if(calls, fails);
  if (found == calls.end()) return std::nullopt;
  return static_cast<size_t>(found - calls.begin());
}

OpCase shrunk(const OpCase& start, const std::function<bool(const OpCase&)>& fails) {
  return shrink_call(start, 1000,
                     [&](const std::vector<OpCase>& calls) { return first_where(calls, fails); });
}

TEST(Shrinking, KeepsWhatTheFailureNeedsAndNothingElse) {
  OpCase start = op_case(kMatmul);
  start.tensors[0].layout = Layout::kTransposed;
  // The call fails if K is not a multiple of 16.
  const OpCase small =
      shrunk(start, [](const OpCase& call) { return call.tensors[0].shape.back() % 16 != 0; });
  EXPECT_EQ(small.tensors[0].shape, (Shape{1, 1}));
  EXPECT_EQ(small.tensors[0].layout, Layout::kDense);
  EXPECT_EQ(small.tensors[0].fill.low, 1) << "one number in all elements";
  EXPECT_EQ(small.tensors[0].fill.high, 1);
  const OpCase large = shrunk(start, [](const OpCase& call) {
    return call.tensors[0].shape.size() == 2 && call.tensors[0].shape[1] >= 17 &&
           call.tensors[0].layout == Layout::kTransposed;
  });
  EXPECT_EQ(large.tensors[0].shape[1], 17);
  EXPECT_EQ(large.tensors[0].layout, Layout::kTransposed);
  EXPECT_EQ(large.tensors[1].layout, Layout::kDense);
  EXPECT_TRUE(HostCall(large).is_legal());
}

TEST(Shrinking, ProposesLegalCallsThatTheOracleFollows) {
  size_t checked = 0;
  for (const Case& which : suite().cases()) {
    const bool is_wanted = which.op_case != nullptr && which.tier == Tier::kSmoke &&
                           which.dtype == "f32" && follows_shapes(*which.op_case);
    if (!is_wanted || ++checked % 8 != 0) continue;
    for (const OpCase& call : simpler_calls(*which.op_case)) {
      ASSERT_TRUE(HostCall(call).is_legal()) << which.id;
      const CallData data(call, 7);
      size_t output = 0;
      const std::vector<Expected> expected = call.reference(data, Numerics{});
      for (const TensorArgument& argument : call.tensors) {
        if (argument.role == Role::kInput) continue;
        EXPECT_EQ(expected.at(output++).value.size(),
                  static_cast<size_t>(element_count(argument.shape)))
            << which.id << " " << describe_call(call).dump();
      }
    }
  }
  EXPECT_GT(checked, 400u);
}

TEST(ChangedCases, AreReadAsTheyAreWritten) {
  for (const char* id : {kMatmul, "op.add.f32.random.3x11.scalar_b_dense"}) {
    OpCase changed = op_case(id);
    changed.tensors[0].layout = Layout::kStepped;
    const nlohmann::json description = describe_call(changed);
    EXPECT_EQ(describe_call(changed_case(op_case(id), description)), description);
  }
}

TEST(ChangedCases, RefuseWhatIsNoCallOfTheOp) {
  const OpCase& base = op_case(kMatmul);
  nlohmann::json description = describe_call(base);
  description["tensors"][0]["shape"] = {65, 64};
  EXPECT_THROW(changed_case(base, description), UsageError);
  description["tensors"][0]["layout"] = "round";
  EXPECT_THROW(changed_case(base, description), UsageError);
  EXPECT_THROW(changed_case(base, {{"tensors", nlohmann::json::array()}}), UsageError);
  EXPECT_THROW(make_changed_case(suite(), {{"case", "stream.new_stream_is_idle"}}), UsageError);
}

TEST(Failures, AreTheSameOnlyWhereADeathIsInTheSamePhase) {
  const Result crash{.outcome = Outcome::kCrash,
                     .message = "died of signal 11 (SIGSEGV), in phase launch 1",
                     .cause = "crash"};
  Result other = crash;
  other.message = "died of signal 11 (SIGSEGV), in phase launch 2";
  EXPECT_TRUE(is_same_failure(crash, other));
  other.message = "died of signal 11 (SIGSEGV), in phase oracle";
  EXPECT_FALSE(is_same_failure(crash, other));
  EXPECT_FALSE(is_same_failure({.outcome = Outcome::kFail, .cause = "canary"},
                               {.outcome = Outcome::kFail, .cause = "values"}));
}

}  // namespace
}  // namespace bp::conformance
