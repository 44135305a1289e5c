// Tests pools without gradients, unfold and fold against results worked out by hand.
#include "conformance/reference/pooling.hpp"

#include <gtest/gtest.h>

namespace bp::conformance::reference {
namespace {

using Indices = std::vector<int64_t>;
using Values = std::vector<double>;

Array<double> tensor(Shape shape, Values values) {
  Array<double> result(std::move(shape));
  result.data = std::move(values);
  return result;
}

TEST(Pooling, AdaptiveWindowsGiveTheirFirstLargestElement) {
  const auto found = adaptive_max_pool(tensor({1, 1, 5}, {7, 1, 9, 9, 3}), {2});
  EXPECT_EQ(found.values.data, (Values{9, 9}));  // The windows are 0 to 2, and 2 to 4.
  EXPECT_EQ(found.indices.data, (Indices{2, 2}));
  const auto nan = adaptive_max_pool(tensor({1, 2, 2}, {-1, -2, std::nan(""), std::nan("")}), {1});
  EXPECT_EQ(nan.values[0], -1);
  EXPECT_TRUE(std::isnan(nan.values[1]));
  EXPECT_EQ(nan.indices.data, (Indices{0, 0}));
  const auto plane = adaptive_max_pool(tensor({1, 1, 2, 3}, {1, 5, 2, 4, 3, 6}), {1, 3});
  EXPECT_EQ(plane.values.data, (Values{4, 5, 6}));
  EXPECT_EQ(plane.indices.data, (Indices{3, 1, 5}));
}

const Window kSquares{
    .kernel_size = {2, 2}, .stride = {1, 1}, .padding = {0, 0, 0, 1}, .dilation = {1, 1}};

TEST(Pooling, UnfoldHasAColumnForEachWindow) {
  const Array<double> y = unfold(tensor({1, 1, 2, 2}, {1, 2, 3, 4}), kSquares);
  EXPECT_EQ(y.shape, (Shape{1, 4, 2}));
  EXPECT_EQ(y.data, (Values{1, 2, 2, 0, 3, 4, 4, 0}));
}

TEST(Pooling, FoldAddsWhatWindowsShare) {
  const auto columns = tensor({1, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Array<double> y = fold(columns, {2, 2}, kSquares);
  EXPECT_EQ(y.shape, (Shape{1, 1, 2, 2}));
  EXPECT_EQ(y.data, (Values{1, 2 + 3, 5, 6 + 7}));
}

}  // namespace
}  // namespace bp::conformance::reference
