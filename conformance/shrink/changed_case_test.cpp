// Calls as data: what describes a call is read back, and a file that somebody has changed by hand
// is refused with a reason.
#include "conformance/shrink/changed_case.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr const char* kAdd = "op.add.f32.random.3x11.scalar_b_dense";
constexpr const char* kDense = "op.add.f32.random.17.dense";
constexpr const char* kMatmul = "op.matmul.f32.random.m31k65n9.dense";

const CaseList& suite() {
  static const CaseList cases = CaseList::of({kAdd, kDense, kMatmul, "stream.new_stream_is_idle"});
  return cases;
}
const OpCase& op_case(const char* id) { return *suite().find(id)->op_case; }

// Returns why a description of the case is refused after `change`.
std::string refusal(const char* id, const std::function<void(json&)>& change) {
  json description = describe_call(op_case(id));
  change(description);
  try {
    static_cast<void>(changed_case(op_case(id), description));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

std::string made_refusal(const json& description) {
  try {
    static_cast<void>(make_changed_case(suite(), description));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(ChangedCalls, MayBeOfEachLayout) {
  for (int i = 0; i <= static_cast<int>(Layout::kOffset); ++i) {
    OpCase laid_out = op_case(kMatmul);
    laid_out.tensors[0].layout = static_cast<Layout>(i);
    if (!HostCall(laid_out).is_legal()) continue;
    const OpCase back = changed_case(op_case(kMatmul), describe_call(laid_out));
    EXPECT_EQ(back.tensors[0].layout, static_cast<Layout>(i)) << i;
  }
}

TEST(ChangedCalls, KeepScalarsAndTheirBits) {
  json description = describe_call(op_case(kAdd));
  bool has_scalar = false;
  for (auto& [name, value] : description["attributes"].items()) {
    if (!value.is_object()) continue;
    has_scalar = true;
    value["bits"] = 0x7FC00001u;  // A NaN with a payload.
  }
  ASSERT_TRUE(has_scalar);
  EXPECT_EQ(describe_call(changed_case(op_case(kAdd), description)), description);
}

TEST(ChangedCalls, AreRefusedWithExtentsThatAreNoIntegers) {
  for (const char* shape :
       {"17", "[17.0]", "[16.5]", "[\"17\"]", "[true]", "[18446744073709551615]", "{}", "null"}) {
    const std::string text =
        refusal(kDense, [&](json& call) { call["tensors"][0]["shape"] = json::parse(shape); });
    EXPECT_NE(text.find(" is expected"), std::string::npos) << shape << ": " << text;
  }
}

TEST(ChangedCalls, AreRefusedWithShapesThatNoTensorCanHave) {
  for (const char* shape : {"[-1]", "[-9223372036854775808]", "[9223372036854775807]",
                            "[4611686018427387904, 4]", "[3037000500, 3037000500]"}) {
    const std::string text = refusal(kDense, [&](json& call) {
      for (json& tensor : call["tensors"]) tensor["shape"] = json::parse(shape);
    });
    EXPECT_TRUE(text.starts_with("shape ")) << shape << ": " << text;
    EXPECT_TRUE(text.ends_with("a tensor has at most 2^40 elements")) << text;
  }
  const std::string deep = refusal(kDense, [&](json& call) {
    for (json& tensor : call["tensors"]) tensor["shape"] = std::vector<int>(1000, 1);
  });
  EXPECT_TRUE(deep.starts_with("makes no legal call: ")) << deep;
  EXPECT_NE(refusal(kDense, [](json& call) { call["tensors"][2]["shape"] = json::array({18}); }),
            "");
}

TEST(ChangedCases, HaveTheTagsOfTheirCaseAndRunAtEveryTier) {
  json description = describe_call(op_case(kDense));
  description["case"] = kDense;
  std::vector<Case> late = {*suite().find(kDense)};
  late[0].tier = Tier::kFull;
  const Case made = make_changed_case(CaseList(std::move(late)), description);
  EXPECT_EQ(made.id, kDense);
  EXPECT_EQ(made.tags, suite().find(kDense)->tags);
  EXPECT_EQ(made.tier, Tier::kSmoke);
  EXPECT_EQ(json::parse(made.change), description);
}

TEST(ChangedCases, AreRefusedWithAnIdOrAWishThatIsOfAnotherKind) {
  json description = describe_call(op_case(kDense));
  description["case"] = 7;
  EXPECT_NE(made_refusal(description), "");
  description["case"] = kDense;
  description["wants_program"] = "yes";
  EXPECT_NE(made_refusal(description), "");
}

}  // namespace
}  // namespace bp::conformance
