#include "conformance/perf/cost.hpp"

#include <gtest/gtest.h>

namespace bp::conformance {
namespace {

TEST(Cost, CountsABroadcastAxisOnce) {
  OpCase add = make_case(BP_OP_ADD, BP_F32, "", "", "");
  add.input("a", BP_F32, {8, 16}, kRandom);
  add.input("b", BP_F32, {8, 16}, kRandom, Layout::kBroadcastFirst);
  add.output("y", BP_F32, {8, 16});
  const Cost cost = cost_of(add);
  EXPECT_EQ(cost.bytes_read, (8 * 16 + 16) * 4);
  EXPECT_EQ(cost.bytes_written, 8 * 16 * 4);
  EXPECT_EQ(cost.flops, 0);
}

TEST(Cost, CountsGapsOfALayoutNot) {
  OpCase copy = make_case(BP_OP_COPY, BP_F64, "", "", "");
  copy.input("x", BP_F64, {4, 6}, kRandom, Layout::kStepped).output("y", BP_F32, {4, 6});
  EXPECT_EQ(cost_of(copy).bytes_read, 4 * 6 * 8);
  EXPECT_EQ(cost_of(copy).bytes_written, 4 * 6 * 4);
}

TEST(Cost, CountsATableOnlyAsOftenAsItIsLookedUp) {
  OpCase embedding = make_case(BP_OP_EMBEDDING, BP_F32, "", "", "");
  embedding.input("weight", BP_F32, {1000, 8}, kRandom);
  embedding.input("indices", BP_I64, {5}, index_fill(1000)).output("y", BP_F32, {5, 8});
  EXPECT_EQ(cost_of(embedding).bytes_read, 5 * 8 * 4 + 5 * 8);
}

TEST(Cost, ReadsAndWritesWhatIsUpdated) {
  OpCase step = make_case(BP_OP_SGD_STEP, BP_F32, "", "", "");
  step.inout("params", BP_F32, {10}, kRandom).input("grads", BP_F32, {10}, kRandom);
  EXPECT_EQ(cost_of(step).bytes_read, 80);
  EXPECT_EQ(cost_of(step).bytes_written, 40);
  EXPECT_EQ(cost_of(step).bytes_updated, 40);
}

TEST(Cost, CountsTwoFlopsForEachProduct) {
  OpCase matmul = make_case(BP_OP_MATMUL, BP_F32, "", "", "");
  matmul.input("a", BP_F32, {3, 4, 5}, kRandom).input("b", BP_F32, {3, 5, 7}, kRandom);
  matmul.output("y", BP_F32, {3, 4, 7});
  EXPECT_EQ(cost_of(matmul).flops, 2 * 3 * 4 * 5 * 7);

  OpCase weight = make_case(BP_OP_CONVOLUTION_BACKWARD_WEIGHT, BP_F32, "", "", "");
  weight.input("grad_y", BP_F32, {2, 6, 8, 8}, kRandom).input("x", BP_F32, {2, 4, 8, 8}, kRandom);
  weight.output("grad_weight", BP_F32, {6, 2, 3, 3});
  weight.set("kernel_size", Shape{3, 3}).set("groups", int64_t{2});
  EXPECT_EQ(cost_of(weight).flops, 2 * (2 * 6 * 8 * 8) * (2 * 3 * 3));
}

TEST(Cost, CountsPairsOfAttentionThatAreSeen) {
  OpCase sdpa = make_case(BP_OP_SDPA, BP_F32, "", "", "");
  sdpa.input("q", BP_F32, {2, 3, 4, 8}, kRandom).input("k", BP_F32, {2, 3, 4, 8}, kRandom);
  sdpa.input("v", BP_F32, {2, 3, 4, 5}, kRandom).output("y", BP_F32, {2, 3, 4, 5});
  OpCase causal = sdpa;
  OpCase window = causal.set("causal", int64_t{1});
  window.set("window_left", int64_t{2});
  EXPECT_EQ(cost_of(sdpa).flops, 2 * (2 * 3 * 16) * (8 + 5));
  EXPECT_EQ(cost_of(causal).flops, 2 * (2 * 3 * 10) * (8 + 5));
  EXPECT_EQ(cost_of(window).flops, 2 * (2 * 3 * 7) * (8 + 5));
}

}  // namespace
}  // namespace bp::conformance
