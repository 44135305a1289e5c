// Tests the oracles of mixtures of experts against results worked out by hand.
#include "conformance/reference/moe.hpp"

#include <gtest/gtest.h>

namespace bp::conformance::reference {
namespace {

using Values = std::vector<double>;
using Numbers = std::vector<int64_t>;

template <typename T>
Array<T> made(Shape shape, std::vector<T> values) {
  Array<T> x(std::move(shape));
  x.data = std::move(values);
  return x;
}

// The exponentials of the rows are 1, 2, 5 and 4, 3, 1.
Array<double> logits() {
  const Values parts = {1, 2, 5, 4, 3, 1};
  Array<double> x(Shape{2, 3});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = std::log(parts[static_cast<size_t>(i)]);
  return x;
}

TEST(MoeRoute, ChoosesTheLargestFirst) {
  const Routed routed = choose_experts(logits(), {.k = 2});
  EXPECT_EQ(routed.experts.data, (Numbers{2, 1, 0, 1}));
  EXPECT_EQ(routed.counts.data, (Numbers{1, 2, 1}));
  EXPECT_EQ(routed.dropped, 0);
}

TEST(MoeRoute, FirstChoicesComeBeforeSecondOnes) {
  const Array<double> x = made<double>({3, 2}, {1, 2, 2, 1, 2, 1});
  const Routed routed = choose_experts(x, {.k = 2, .capacity = 2});
  EXPECT_EQ(routed.experts.data, (Numbers{1, -1, 0, 1, 0, -1}));
  EXPECT_EQ(routed.counts.data, (Numbers{2, 2}));
  EXPECT_EQ(routed.dropped, 2);
}

TEST(MoeRoute, WeightsAreScoresOrSharesOfThem) {
  const Array<double> x = logits();
  const auto expect = [&](const RouteRule& rule, const Numbers& experts, const Values& weights) {
    const Array<double> y = route_weights(x, made<int64_t>({2, 2}, experts), rule);
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(y.data[i], weights[i], 1e-15) << i;
  };
  expect({.k = 2}, {2, 1, 0, -1}, {5.0 / 8, 2.0 / 8, 4.0 / 8, 0});
  expect({.k = 2, .renormalizes = true}, {2, 1, 0, -1}, {5.0 / 7, 2.0 / 7, 1, 0});
  expect({.k = 2, .is_sigmoid = true}, {2, 1, 0, 2}, {5.0 / 6, 2.0 / 3, 4.0 / 5, 0.5});
  expect({.k = 2, .renormalizes = true}, {-1, -1, 0, 1}, {0, 0, 4.0 / 7, 3.0 / 7});
}

TEST(MoePermute, OrdersRowsByExpertAndBack) {
  const Array<double> x = made<double>({3, 1}, {10, 20, 30});
  const Array<int64_t> experts = made<int64_t>({3, 2}, {1, 0, 5, 1, 0, -1});
  const Permuted<double> permuted = moe_permute(x, experts, 2);
  EXPECT_EQ(permuted.y.data, (Values{10, 30, 10, 20, 0, 0}));
  EXPECT_EQ(permuted.offsets.data, (Numbers{0, 2, 4}));
  EXPECT_EQ(permuted.places.data, (Numbers{2, 0, -1, 3, 1, -1}));
  const Array<double> weights = made<double>({3, 2}, {0.5, 0.25, 7, 2, 1, 7});
  EXPECT_EQ(moe_unpermute(permuted.y, permuted.places, &weights).data, (Values{7.5, 40, 30}));
  const Array<double>* none = nullptr;
  EXPECT_EQ(moe_unpermute(permuted.y, permuted.places, none).data, (Values{20, 20, 30}));
}

TEST(GroupedMatmul, RowsMeetTheMatrixOfTheirGroup) {
  const Array<double> a = made<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Array<double> b = made<double>({2, 2, 1}, {1, 10, 100, 1000});
  const Array<int64_t> offsets = made<int64_t>({3}, {1, 2, 3});
  EXPECT_EQ(grouped_matmul(a, b, offsets).data, (Values{0, 43, 6500, 0}));
  const Array<double> grad_y = made<double>({4, 1}, {1, 2, 3, 4});
  EXPECT_EQ(grouped_matmul_backward_b(grad_y, a, offsets).data, (Values{6, 8, 15, 18}));
}

}  // namespace
}  // namespace bp::conformance::reference
