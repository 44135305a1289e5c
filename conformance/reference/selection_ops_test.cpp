// Tests the ops that choose and move elements against results worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "conformance/reference/selection.hpp"

namespace bp::conformance::reference {
namespace {

template <typename T>
Array<T> tensor(Shape shape, std::vector<T> values) {
  Array<T> result(std::move(shape));
  result.data = std::move(values);
  return result;
}

using Indices = std::vector<int64_t>;
using Values = std::vector<double>;

TEST(Selection, CatPutsTensorsBehindEachOther) {
  const auto a = tensor<double>({2, 1}, {1, 2}), b = tensor<double>({2, 2}, {3, 4, 5, 6});
  const Array<double> y = cat(std::vector{a, b}, 1);
  EXPECT_EQ(y.shape, (Shape{2, 3}));
  EXPECT_EQ(y.data, (Values{1, 3, 4, 2, 5, 6}));
  EXPECT_EQ(cat(std::vector{b, b}, 0).data, (Values{3, 4, 5, 6, 3, 4, 5, 6}));
}

TEST(Selection, GatherReadsAlongItsAxis) {
  const auto x = tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto rows = tensor<int64_t>({1, 3}, {1, 0, 1});
  EXPECT_EQ(gather(x, rows, 0).data, (Values{4, 2, 6}));
  const auto columns = tensor<int64_t>({2, 2}, {2, 2, 0, 1});
  EXPECT_EQ(gather(x, columns, 1).data, (Values{3, 3, 4, 5}));
}

TEST(Selection, ScatterKeepsTheLastAndSumsAll) {
  const auto x = tensor<double>({3}, {10, 20, 30});
  const auto indices = tensor<int64_t>({3}, {2, 0, 2});
  const auto src = tensor<double>({3}, {1, 2, 3});
  EXPECT_EQ(scatter(x, indices, src, 0).data, (Values{2, 20, 3}));
  EXPECT_EQ(scatter_sum(x, indices, src, 0).data, (Values{12, 20, 34}));
}

TEST(Selection, IndexSelectTakesSlices) {
  const auto x = tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto indices = tensor<int64_t>({4}, {2, 0, 0, 1});
  const Array<double> y = index_select(x, indices, 1);
  EXPECT_EQ(y.shape, (Shape{2, 4}));
  EXPECT_EQ(y.data, (Values{3, 1, 1, 2, 6, 4, 4, 5}));
}

TEST(Selection, SortIsStableAndPutsNanAboveAll) {
  const double nan = std::nan("");
  const auto x = tensor<double>({5}, {2, nan, -1, 2, HUGE_VAL});
  EXPECT_EQ(sorted(x, 0, 5, false).indices.data, (Indices{2, 0, 3, 4, 1}));
  EXPECT_EQ(sorted(x, 0, 5, true).indices.data, (Indices{1, 4, 0, 3, 2}));
  EXPECT_EQ(sorted(x, 0, 2, false).values.data, (Values{-1, 2}));
  const auto columns = tensor<double>({2, 2}, {0.0, 1, -0.0, -1});
  EXPECT_EQ(sorted(columns, 0, 2, false).indices.data, (Indices{0, 1, 1, 0}));
}

}  // namespace
}  // namespace bp::conformance::reference
