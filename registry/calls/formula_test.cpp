// Tests how the formulas of ops that are described at run time are parsed, and which are refused.
// services/decompose_test.cpp runs them.
#include "registry/calls/formula.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "backplane/host.h"
#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/tests/runtime_op_desc.hpp"

namespace bp::core {
namespace {

// Returns why TestOp with this decomposition is rejected, or "".
std::string refusal_of(const char* decomposition, const char* backward = nullptr) {
  TestOp op("acme.tried");
  op.decomposition = decomposition;
  op.backward = backward;
  OwnedOps owned;
  uint32_t number = 0;
  return owned.add(op.desc(), &number);
}

uint32_t added(OwnedOps& owned, TestOp& op) {
  uint32_t number = 0;
  EXPECT_EQ(owned.add(op.desc(), &number), "") << op.name;
  return number;
}

// ---- What formulas may say ----------------------------------------------------------------------

TEST(Formulas, MayStandInSeveralLinesWithinBrackets) {
  EXPECT_EQ(refusal_of("rows = numel(x.shape[:-1])\n"
                       "\n"
                       "flat = reshape(x, [rows, x.shape[-1]])\n"
                       "half = 1.5 - 1.0e-1 * 10\n"
                       "product = matmul(\n    flat, weight,\n    alpha=0, beta=0)\n"
                       "y = reshape(mul(product, half), x.shape[:-1] + [weight.shape[1]])\n"),
            "");
}

TEST(Formulas, MayChooseByEnumerationsAndNumbersAndDtypes) {
  EXPECT_EQ(refusal_of("p = matmul(x, weight, alpha=0, beta=0, dtype=acc(x))\n"
                       "q = p if mode == fast else (mul(p, 2) if is_integer(x) else neg(p))\n"
                       "y = copy(q if axis < x.ndim - 1 else add(p, 1), dtype=y.dtype)"),
            "");
}

TEST(Formulas, MayCallOpsOfTheirVendorThatWereDescribedBefore) {
  TestOp inner("acme.inner"), outer("acme.outer"), other("other.outer");
  outer.decomposition = "y = acme.inner(x, weight, mode=exact, axis=axis)";
  OwnedOps owned;
  uint32_t number = 0;
  EXPECT_EQ(owned.add(outer.desc(), &number),
            "decomposition, line 1: there is no op or view 'acme.inner'");
  added(owned, inner);
  added(owned, outer);
  outer.decomposition = "y = acme_inner(x, weight, mode=mode, axis=axis)";
  added(owned, outer);
  other.decomposition = "y = acme.inner(x, weight, mode=fast, axis=axis)";
  EXPECT_EQ(owned.add(other.desc(), &number),
            "decomposition, line 1: 'acme.inner' is of another vendor; allowed are ops of this "
            "vendor and of the spec");
}

TEST(Formulas, AreLentAsTheirAuthorWroteThem) {
  TestOp op("acme.lent");
  op.decomposition = "p = matmul(x, weight, alpha=0, beta=0)\ny = copy(p)";
  op.backward = "grad_x = matmul(grad_y, transpose(weight), alpha=0, beta=0)";
  OwnedOps owned;
  const bp_op_desc* desc = nullptr;
  ASSERT_EQ(bp_op_describe(added(owned, op), &desc), BP_OK);
  EXPECT_STREQ(desc->decomposition, op.decomposition);
  EXPECT_STREQ(desc->backward, op.backward);
  EXPECT_EQ(desc->formula_revision, 1u);
}

// ---- Refusals -----------------------------------------------------------------------------------

// [OP-6]
TEST(Formulas, AreRefusedWithTheLineAndTheWord) {
  const struct {
    const char* text;
    const char* words;
  } rows[] = {
      {"", "no line gives y a value"},
      {"z = copy(x)", "no line gives y a value"},
      {"y", "line 1: '=' is expected in place of the end"},
      {"y = 3", "line 1: '3' is no tensor; write ops by name, such as mul(a, b)"},
      {"y = rotate(x)", "line 1: there is no op or view 'rotate'"},
      {"y = neg(rotate(x))", "line 1: there is no op or view 'rotate'"},
      {"a = neg(x)\n\ny = add(a,\n  weight2)", "line 4: 'weight2' is no argument of this op"},
      {"y = add(x)", "line 1: add needs b"},
      {"y = add(x, 1, 2)", "line 1: add takes no further tensor '2'"},
      {"y = neg(x) 3", "line 1: '3' is not expected"},
      {"y = neg(x, x=x)", "line 1: 'x' is given twice"},
      {"y = neg(x, z=x)", "line 1: neg takes no 'z'"},
      {"y = neg(x, y=x)", "line 1: neg takes no 'y'"},
      {"y = sum(x, axes=[0], 3)", "line 1: '3' stands behind a keyword"},
      {"y = sum(x, axes=0, keepdims=0)", "line 1: '0' is a whole number, not a shape"},
      {"y = softmax(x)", "line 1: softmax needs axis"},
      {"y = gelu(x, approximation=quick)", "approximation is one of none, tanh"},
      {"y = fill(value=1, dtype=f32)", "line 1: fill needs shape="},
      {"y = neg(x, dtype=f32)", "line 1: the dtype of neg cannot be chosen"},
      {"y = reshape(x)", "line 1: reshape needs shape in front of ')'"},
      {"y = neg(y)", "line 1: 'y' has no value yet"},
      {"x = neg(x)\ny = x", "line 1: 'x' has a meaning already"},
      {"a = f32\ny = neg(x)", "a line is a tensor, a number or a shape"},
      {"y = cat(x, axis=0)", "line 1: xs is a list of tensors; write [x], or name a list"},
      {"y = cat([x, axis=0)", "line 1: 'axis' is no tensor"},
      {"y = x[0]", "line 1: '[' is not expected"},
      {"y = neg(x if mode == quick else x)", "line 1: 'quick' is no value of mode"},
      {"y = neg(x)\ny = neg(x)", "line 2: 'y' has a meaning already"},
      {"y = neg(x", "line 1: ')' is expected in place of the end"},
      {"y = neg(\x1b(x))", "line 1: '\\x1b' is no tensor"},
  };
  for (const auto& row : rows) {
    const std::string refusal = refusal_of(row.text);
    EXPECT_NE(refusal.find(row.words), std::string::npos)
        << row.text << "\n  " << row.words << "\n  but: " << refusal;
    EXPECT_TRUE(refusal.starts_with("decomposition, ")) << refusal;
  }
}

TEST(Formulas, HaveConditionsThatAreExpressionsForANumber) {
  const auto refused = [](const char* condition, const char* decomposition = "y = neg(x)") {
    TestOp op("acme.conditions");
    op.decomposition = decomposition;
    op.condition = condition;
    OwnedOps owned;
    uint32_t number = 0;
    return owned.add(op.desc(), &number);
  };
  EXPECT_EQ(refused("x.dtype != f16 and axis == 0"), "");
  EXPECT_EQ(refused("axis == 0", nullptr), "it has a condition, and no decomposition");
  EXPECT_EQ(refused("x.shape"), "condition \"x.shape\", it is a shape, not a whole number");
  EXPECT_NE(refused("z == 0").find("'z' is no argument of this op"), std::string::npos);
  EXPECT_NE(refused("axis ==").find("condition \"axis ==\", "), std::string::npos);
}

TEST(Formulas, GiveEachListAndWhatIsReadAndWrittenAValue) {
  TestOp op("acme.writes");
  op.arguments[0].kind = BP_ARGUMENT_INOUT;
  op.arguments[2].kind = BP_ARGUMENT_OUT_LIST;
  op.arguments[2].offset_bytes = 32;
  op.arguments.resize(3);
  OwnedOps owned;
  uint32_t number = 0;
  const auto refused = [&](const char* decomposition) {
    op.decomposition = decomposition;
    return owned.add(op.desc(), &number);
  };
  EXPECT_EQ(refused("y = neg(x)"), "decomposition, no line gives x a value");
  EXPECT_EQ(refused("x = neg(x)"), "decomposition, no line gives y a value");
  EXPECT_EQ(refused("z = neg(y)\ny = z\nx = z"), "decomposition, line 1: 'y' has no value yet");
  EXPECT_EQ(refused("y = neg(x)\nz = neg(y)\nx = z"),
            "decomposition, line 2: 'y' is a list of tensors; write y[0] for one of them");
  EXPECT_EQ(refused("y = neg(x)\nx = neg(y[0])"), "");
}

// [OP-6]
TEST(Formulas, HaveBounds) {
  std::string deep = "y = ", wide = "a = 1", lines, longest = "y = neg(x)";
  for (int i = 0; i < 40; ++i) deep += "neg(";
  for (int i = 0; i < 300; ++i) wide += " + 1";
  for (int i = 0; i < 300; ++i) lines += "a" + std::to_string(i) + " = neg(x)\n";
  longest.append(kMaxPluginText, ' ');
  EXPECT_NE(refusal_of(deep.c_str()).find("the formula is nested too deeply"), std::string::npos);
  EXPECT_NE(refusal_of(wide.c_str()).find("has more than 256 parts"), std::string::npos);
  EXPECT_NE(refusal_of(lines.c_str()).find("line 257: there are more than 256 lines"),
            std::string::npos);
  EXPECT_EQ(refusal_of(longest.c_str()), "decomposition has more than 16384 bytes");
}

TEST(Formulas, NeverLeadBackToThemselves) {
  TestOp first("acme.round"), second("acme.trip"), grown("acme.round");
  second.decomposition = "y = acme.round(x, weight, mode=mode, axis=axis)";
  grown.append_bias();
  grown.decomposition = "y = acme.trip(x, weight, mode=mode, axis=axis)";
  OwnedOps owned;
  uint32_t number = 0;
  added(owned, first);
  added(owned, second);
  EXPECT_NE(owned.add(grown.desc(), &number).find("its decomposition leads back to itself"),
            std::string::npos);
  grown.decomposition = "y = acme.round(x, weight, mode=mode, axis=axis)";
  EXPECT_NE(owned.add(grown.desc(), &number).find("its decomposition leads back to itself"),
            std::string::npos);
}

TEST(Formulas, NestUpToABound) {
  OwnedOps owned;
  std::vector<std::string> texts = {"y = matmul(x, weight, alpha=0, beta=0)"};
  for (int i = 0; i < 9; ++i) {
    TestOp op("acme.level" + std::to_string(i));
    op.decomposition = texts.back().c_str();
    uint32_t number = 0;
    const std::string refusal = owned.add(op.desc(), &number);
    EXPECT_EQ(refusal.empty(), i < 8) << refusal;
    texts.push_back("y = " + op.name + "(x, weight, mode=mode, axis=axis)");
  }
}

TEST(Formulas, KnowNothingThatCameAfterTheirRevision) {
  TestOp op("acme.later_formula");
  op.append_bias();
  op.decomposition = "y = add(matmul(x, weight, alpha=0, beta=0), bias)";
  OwnedOps owned;
  uint32_t number = 0;
  EXPECT_NE(owned.add(op.desc(), &number).find("'bias' is no argument of this op"),
            std::string::npos);
  op.formula_revision = 2;
  EXPECT_EQ(owned.add(op.desc(), &number), "");
  op.formula_revision = 3;
  EXPECT_EQ(owned.add(op.desc(), &number), "formula_revision is 3; allowed are 1 to 2");
}

// [OP-12]
TEST(Formulas, OfGradientsKnowNothingThatCameAfterTheirOwnRevision) {
  TestOp op("acme.later_gradient");
  op.append_bias();
  op.decomposition = "y = add(matmul(x, weight, alpha=0, beta=0), bias)";
  op.backward = "grad_x = mul(grad_y, bias)";
  op.formula_revision = 2;
  op.backward_revision = 1;
  OwnedOps owned;
  uint32_t number = 0;
  EXPECT_NE(owned.add(op.desc(), &number).find("backward, line 1: 'bias' is no argument"),
            std::string::npos);
  op.backward_revision = 3;
  EXPECT_EQ(owned.add(op.desc(), &number), "backward_revision is 3; allowed are 1 to 2");
  op.backward_revision = 0;
  EXPECT_EQ(owned.add(op.desc(), &number), "");
  const bp_op_desc* desc = nullptr;
  ASSERT_EQ(bp_op_describe(number, &desc), BP_OK);
  EXPECT_EQ(desc->backward_revision, 2u) << "that of the decomposition";
}

// ---- Gradients ----------------------------------------------------------------------------------

TEST(Formulas, OfGradientsAreChecked) {
  EXPECT_EQ(refusal_of(nullptr, "none: nobody trains it"), "");
  EXPECT_EQ(refusal_of(nullptr, "relu_backward"), "");
  EXPECT_EQ(refusal_of(nullptr, "through = neg(grad_y)\ngrad_x = neg(through)"), "");
  EXPECT_EQ(refusal_of(nullptr, "acme_backward"), "backward, there is no op 'acme_backward'");
  EXPECT_EQ(refusal_of(nullptr, "grad_x = neg(grad_z)"),
            "backward, line 1: 'grad_z' is no tensor; "
            "write ops by name, such as mul(a, b)");
}

// Gradients of lists, which are written for one item, are beyond what a vendor may write.
TEST(Formulas, OfTheGradientsOfTheSpecAreAccepted) {
  int count = 0;
  for (const OpRow& row : op_rows()) {
    const bp_op_desc* ours = nullptr;
    ASSERT_EQ(bp_op_describe(row.op, &ours), BP_OK);
    ASSERT_NE(ours->backward, nullptr) << ours->name;
    const std::span<const bp_op_argument> arguments{ours->arguments, ours->argument_count};
    const bool has_list = std::ranges::any_of(
        arguments, [](const bp_op_argument& a) { return a.kind == BP_ARGUMENT_TENSOR_LIST; });
    if (has_list) continue;
    Formula formula;
    EXPECT_EQ(check_backward({.name = "twin.op",
                              .arguments = arguments,
                              .since = ours->since,
                              .revision = ours->revision,
                              .frame_size_bytes = ours->frame_size_bytes},
                             ours->backward, formula),
              "")
        << ours->name << "\n"
        << ours->backward;
    ++count;
  }
  EXPECT_GT(count, 70);
}

// Each text of the spec is one that a vendor may write.
TEST(Formulas, OfTheSpecAreAccepted) {
  OwnedOps owned;
  int count = 0;
  for (const OpRow& row : op_rows()) {
    const bp_op_desc* ours = nullptr;
    ASSERT_EQ(bp_op_describe(row.op, &ours), BP_OK);
    if (ours->decomposition == nullptr) continue;
    const TwinOp twin(*ours);
    uint32_t number = 0;
    EXPECT_EQ(owned.add(twin.desc, &number), "") << twin.name;
    ++count;
  }
  EXPECT_GT(count, 10);
}

}  // namespace
}  // namespace bp::core
