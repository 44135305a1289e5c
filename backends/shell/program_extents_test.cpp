// Tests the extents of programs: what they are in a launch, and which of them are refused.
#include "backplane/shell/program_extents.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "backends/shell/test_program.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/program.hpp"

namespace bp {
namespace {

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const StatusError& e) {
    return std::to_string(e.status()) + " " + e.what();
  }
  return "none";
}

std::string invalid(const std::string& text) {
  return std::to_string(BP_INVALID_ARGUMENT) + " program: " + text;
}

std::string refusal_of(ProgramMaker& maker) {
  return failure_of([&] { ProgramExtents{*maker.program()}; });
}

TEST(ProgramExtents, FollowFromTheRanges) {
  ProgramMaker maker;
  const int64_t past = maker.add_range(0, 8, 100), now = maker.add_range(1, 2, 4);
  const int64_t all = maker.add_formula(BP_EXTENT_SUM, {past, now, 1});
  maker.add_formula(BP_EXTENT_PRODUCT, {all, now, 2});
  maker.add_formula(BP_EXTENT_QUOTIENT, {12, now});
  maker.add_formula(BP_EXTENT_MAXIMUM, {past, 9, now});
  const ProgramExtents extents(*maker.program());
  EXPECT_EQ(extents.evaluated({5, 3, 0, 0, 0, 0}, "launch"), (ExtentNumbers{5, 3, 9, 54, 4, 9}));
  EXPECT_EQ(extents.preferred(), (ExtentNumbers{8, 2, 11, 44, 6, 9}));
  EXPECT_EQ(extents.smallest(), (ExtentNumbers{0, 1, 2, 4, 12, 9}));
  EXPECT_EQ(extents.largest(), (ExtentNumbers{100, 4, 105, 840, 3, 100}));
  EXPECT_EQ(extents.bounds(), (ExtentNumbers{100, 4, 105, 840, 12, 100}))
      << "the quotient is largest where its divisor is smallest";
  EXPECT_TRUE(extents.knows(-6) && extents.knows(7) && !extents.knows(-7));
}

TEST(ProgramExtents, NameWhatALaunchHasWrong) {
  ProgramMaker maker;
  const int64_t n = maker.add_range(2, 4, 64), m = maker.add_range(0, 2, 9);
  maker.add_formula(BP_EXTENT_QUOTIENT, {n, 2});
  maker.add_formula(BP_EXTENT_QUOTIENT, {0, m});
  maker.add_formula(BP_EXTENT_PRODUCT, {n, INT64_MAX / 64});
  const ProgramExtents extents(*maker.program());
  const auto failure = [&](int64_t first, int64_t second) {
    return failure_of([&] { extents.evaluated({first, second, 0, 0, 0}, "program"); });
  };
  EXPECT_EQ(failure(64, 1), "none");
  EXPECT_EQ(failure(65, 1), invalid("extent 0 is 65; its range is 2 to 64"));
  EXPECT_EQ(failure(1, 1), invalid("extent 0 is 1; its range is 2 to 64"));
  EXPECT_EQ(failure(7, 1), invalid("extent 2: 7 / 2 has a remainder"));
  EXPECT_EQ(failure(8, 0), invalid("extent 3: 0 / 0 has no result"));
  EXPECT_EQ(failure_of([&] { extents.smallest(); }),
            invalid("with each range at min: extent 3: 0 / 0 has no result"));
}

TEST(ProgramExtents, AreRefusedIfTheyCannotBe) {
  const auto refusal = [](bp_program_extent extent) {
    ProgramMaker maker;
    maker.add_range(1, 2, 3);
    maker.add_extent(extent);
    return refusal_of(maker);
  };
  EXPECT_EQ(refusal({.kind = BP_EXTENT_RANGE, .min = 3, .preferred = 2, .max = 4}),
            invalid("extent 1: min, preferred and max are 3, 2, 4; they must not fall, and min "
                    "must be at least 0"));
  EXPECT_EQ(refusal({.kind = BP_EXTENT_RANGE, .min = -1, .preferred = 2, .max = 4}).substr(0, 24),
            invalid("extent 1: min").substr(0, 24));
  EXPECT_EQ(refusal({.kind = 6}),
            std::to_string(BP_UNSUPPORTED) + " program: extent 1: kind 6 is not known");
  const int64_t itself[] = {1, -2}, later[] = {-3}, three[] = {8, 4, 2};
  EXPECT_EQ(refusal({.kind = BP_EXTENT_SUM, .terms = itself, .term_count = 2}),
            invalid("extent 1: the term -2 names extent 1, and only earlier extents are allowed"));
  EXPECT_EQ(refusal({.kind = BP_EXTENT_MAXIMUM, .terms = later, .term_count = 1}),
            invalid("extent 1: the term -3 names extent 2, and only earlier extents are allowed"));
  EXPECT_EQ(
      refusal({.kind = BP_EXTENT_QUOTIENT, .terms = three, .term_count = 3}),
      invalid("extent 1: it has 3 terms; a quotient has 2, and any other formula at least 1"));
  EXPECT_EQ(
      refusal({.kind = BP_EXTENT_SUM}),
      invalid("extent 1: it has 0 terms; a quotient has 2, and any other formula at least 1"));
  EXPECT_EQ(refusal({.kind = BP_EXTENT_SUM, .max = 4, .terms = three, .term_count = 3}),
            invalid("extent 1: min, preferred and max are 0, 0, 4; those of a formula are 0"));
  EXPECT_EQ(refusal({.kind = BP_EXTENT_RANGE, .max = 4, .terms = three, .term_count = 3}),
            invalid("extent 1: a range has no terms"));
  EXPECT_EQ(refusal({.kind = BP_EXTENT_SUM, .term_count = 3}),
            invalid("extent 1: terms is NULL, and term_count is 3"));
}

TEST(ProgramExtents, AreNotLargerThan63Bits) {
  ProgramMaker maker;
  const int64_t n = maker.add_range(1, 1, int64_t{1} << 32);
  maker.add_formula(BP_EXTENT_PRODUCT, {n, n});
  const ProgramExtents extents(*maker.program());
  EXPECT_EQ(extents.bounds()[1], INT64_MAX);
  EXPECT_EQ(failure_of([&] { extents.largest(); }),
            invalid("with each range at max: extent 1: it is more than 63 bits hold"));
}

// ---- Where a program names them -----------------------------------------------------------------

class ExtentNames : public ::testing::Test {
 protected:
  std::string refusal() {
    return failure_of([&] { Program{maker.program()}; });
  }

  ProgramMaker maker;
  const int64_t n = maker.add_range(1, 2, 8);
  const uint32_t x = maker.add_value(BP_VALUE_INPUT, {n}),
                 y = maker.add_value(BP_VALUE_OUTPUT, {n});
};

TEST_F(ExtentNames, GiveTheProgramOfALaunch) {
  const uint32_t t = maker.add_value(BP_VALUE_TEMPORARY, {3, n});
  maker.add_neg(x, y);
  maker.add_neg(t, t);
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({n}), .y = maker.view({n})}, {x, t});
  std::swap(maker.nodes[1], maker.nodes[2]);
  const Program program(maker.program());
  EXPECT_TRUE(program.values[t].has_changing_strides());
  EXPECT_FALSE(program.values[x].has_changing_strides());
  const Program at = program.at({5});
  EXPECT_EQ(at.values[t].shape, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(at.values[t].strides, (std::vector<int64_t>{5, 1}));
  EXPECT_EQ(at.values[t].size_bytes(), 60u);
  EXPECT_EQ(at.nodes[2].frame.tensors()[0]->strides[0], 5);
  EXPECT_TRUE(program.names_extents(0) && !at.names_extents(0));
}

TEST_F(ExtentNames, AreThoseOfTheProgram) {
  maker.add_neg(x, y);
  EXPECT_EQ(refusal(), "none");
  maker.add_value(BP_VALUE_INPUT, {4, -2});
  EXPECT_EQ(refusal(), invalid("value 2: an extent is negative: -2 stands for an extent of the "
                               "program, which has 1"));
}

TEST_F(ExtentNames, AreThoseOfTheProgramInANodeToo) {
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({-2}), .y = maker.view({n})}, {x, y});
  EXPECT_EQ(refusal(), invalid("node 0: x: an extent is negative: -2 stands for an extent of the "
                               "program, which has 1"));
}

TEST_F(ExtentNames, HaveARangeInAnInputOrOutput) {
  maker.add_range(0, 1, 2);
  maker.add_neg(x, y);
  EXPECT_EQ(refusal(), invalid("extent 1 is a range, and no input or output has it in its shape"));
}

TEST_F(ExtentNames, AreNotInConstants) {
  const float data[] = {1};
  maker.add_neg(x, y);
  maker.values[maker.add_value(BP_VALUE_CONSTANT, {n})].data = data;
  EXPECT_EQ(refusal(), invalid("value 2: the shape of a constant names an extent"));
}

TEST_F(ExtentNames, RefuseFixedStridesWhereStridesChange) {
  const uint32_t wide = maker.add_value(BP_VALUE_INPUT, {3, n});
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({1}), .y = maker.view({1})}, {wide, y});
  EXPECT_EQ(refusal(), std::to_string(BP_UNSUPPORTED) +
                           " program: node 0: x: its strides are fixed, and those of value 2 "
                           "follow the extents of a launch; give NULL for row-major");
}

TEST_F(ExtentNames, KeepNodesInsideTheirValuesAtBothEnds) {
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({2}), .y = maker.view({2})}, {x, y});
  EXPECT_EQ(refusal(), invalid("node 0: x: it leaves value 0")) << "at least 1 element is there";
}

TEST_F(ExtentNames, AreBoundToIntegerAttributes) {
  maker.add_node(BP_OP_TOPK, bp_topk_args{.x = maker.view({n}), .y = maker.view({n}), .k = 7},
                 {x, y});
  const bp_extent_binding bindings[] = {{.member_offset = offsetof(bp_topk_args, k)}};
  maker.nodes[0].bindings = bindings;
  maker.nodes[0].binding_count = 1;
  const Program program(maker.program());
  const auto k_of = [](const Program& at) {
    return static_cast<const bp_topk_args*>(at.nodes[0].frame.data())->k;
  };
  EXPECT_EQ(k_of(program.at({5})), 5);
  EXPECT_EQ(k_of(program.at({3})), 3);

  std::vector<uint64_t> words;
  program.write_to(words, "serialize");
  size_t position = 0;
  const Program again(words, position);
  EXPECT_EQ(position, words.size());
  EXPECT_EQ(k_of(again.at({6})), 6);
  EXPECT_EQ(again.at({6}).values[0].strides, std::vector<int64_t>{1});
}

TEST_F(ExtentNames, AreBoundToElementsOfLists) {
  const int64_t sizes[] = {1, 1};
  const uint32_t image = maker.add_value(BP_VALUE_INPUT, {1, 1, 2, n}),
                 mean = maker.add_value(BP_VALUE_OUTPUT, {1, 1, 2, 1});
  maker.add_node(BP_OP_AVG_POOL,
                 bp_avg_pool_args{.x = maker.view({1, 1, 2, n}),
                                  .y = maker.view({1, 1, 2, 1}),
                                  .kernel_size_count = 2,
                                  .kernel_size = sizes},
                 {image, mean});
  bp_extent_binding binding{.member_offset = offsetof(bp_avg_pool_args, kernel_size), .element = 1};
  maker.nodes[0].bindings = &binding;
  maker.nodes[0].binding_count = 1;
  const Program at = Program(maker.program()).at({6});
  const auto& args = *static_cast<const bp_avg_pool_args*>(at.nodes[0].frame.data());
  EXPECT_EQ(args.kernel_size[0], 1);
  EXPECT_EQ(args.kernel_size[1], 6);
  binding.element = 2;
  EXPECT_EQ(refusal(), invalid("node 0: binding 0: kernel_size has 2 elements, and element is 2"));
  binding = {.member_offset = offsetof(bp_avg_pool_args, y)};
  EXPECT_EQ(refusal(), invalid("node 0: binding 0: no integer attribute of avg_pool is at byte " +
                               std::to_string(binding.member_offset)));
  binding = {.member_offset = offsetof(bp_avg_pool_args, kernel_size), .extent = 1};
  EXPECT_EQ(refusal(), invalid("node 0: binding 0: extent is 1, and the program has 1 extents"));
}

TEST_F(ExtentNames, FitIntoTheAttribute) {
  ProgramMaker large;
  const int64_t m = large.add_range(0, 1, int64_t{1} << 31);
  const uint32_t in = large.add_value(BP_VALUE_INPUT, {0, m}),
                 out = large.add_value(BP_VALUE_OUTPUT, {0, m});
  large.add_node(BP_OP_SOFTMAX, bp_softmax_args{.x = large.view({0, m}), .y = large.view({0, m})},
                 {in, out});
  const bp_extent_binding binding{.member_offset = offsetof(bp_softmax_args, axis)};
  large.nodes[0].bindings = &binding;
  large.nodes[0].binding_count = 1;
  EXPECT_EQ(failure_of([&] { Program{large.program()}; }),
            invalid("node 0: axis holds at most 2147483647, and extent 0 is 2147483648"));
}

}  // namespace
}  // namespace bp
