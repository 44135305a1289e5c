// Tests the ops of places against results worked out by hand.
#include "conformance/reference/indexing.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace bp::conformance::reference {
namespace {

using Indices = std::vector<int64_t>;
using Values = std::vector<double>;

template <typename T>
Array<T> tensor(Shape shape, std::vector<T> values) {
  Array<T> result(std::move(shape));
  result.data = std::move(values);
  return result;
}

TEST(Indexing, NonzeroListsPlacesInRowMajorOrder) {
  const Places found = nonzero(tensor<double>({2, 3}, {0, 2, -0.0, std::nan(""), 0, -1}));
  EXPECT_EQ(found.count, 3);
  EXPECT_EQ(found.indices.shape, (Shape{6, 2}));
  EXPECT_EQ(found.indices.data, (Indices{0, 1, 1, 0, 1, 2, -1, -1, -1, -1, -1, -1}));
}

TEST(Indexing, NonzeroOfANumberIsARowOfNoIndices) {
  const Places found = nonzero(tensor<double>({}, {7}));
  EXPECT_EQ(found.count, 1);
  EXPECT_EQ(found.indices.shape, (Shape{1, 0}));
}

TEST(Indexing, MaskedSelectPutsZerosBehindWhatItFound) {
  const auto found =
      masked_select(tensor<double>({4}, {5, 6, 7, 8}), tensor<int64_t>({4}, {0, 1, 0, 1}));
  EXPECT_EQ(found.count, 2);
  EXPECT_EQ(found.values.data, (Values{6, 8, 0, 0}));
}

TEST(Indexing, SearchsortedCountsSmallerElements) {
  const auto row = tensor<double>({5}, {1, 2, 2, 4, std::nan("")});
  const auto values = tensor<double>({2, 3}, {0, 1, 2, 3, 9, std::nan("")});
  EXPECT_EQ(searchsorted(row, values, false).data, (Indices{0, 0, 1, 3, 4, 4}));
  EXPECT_EQ(searchsorted(row, values, true).data, (Indices{0, 1, 3, 3, 4, 5}));
  const auto zeros = tensor<double>({2}, {-0.0, 0.0});
  EXPECT_EQ(searchsorted(zeros, tensor<double>({}, {0.0}), false).data, Indices{0});
  EXPECT_EQ(searchsorted(zeros, tensor<double>({}, {-0.0}), true).data, Indices{2});
}

TEST(Indexing, SearchsortedTakesTheRowOfTheValue) {
  const auto rows = tensor<double>({2, 2}, {1, 2, 3, 4});
  const auto values = tensor<double>({2, 1}, {3, 3});
  EXPECT_EQ(searchsorted(rows, values, false).data, (Indices{2, 0}));
  EXPECT_EQ(searchsorted(rows, values, true).data, (Indices{2, 1}));
}

TEST(Indexing, IndexAddAddsSlices) {
  const auto x = tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto src = tensor<double>({2, 3}, {10, 20, 30, 40, 50, 60});
  const auto twice = tensor<int64_t>({2}, {1, 1});
  EXPECT_EQ(index_add(x, twice, src, 0).data, (Values{1, 2, 3, 54, 75, 96}));
  const auto columns = tensor<int64_t>({3}, {2, 0, 2});
  EXPECT_EQ(index_add(x, columns, src, 1).data, (Values{21, 2, 43, 54, 5, 106}));
}

TEST(Indexing, IndexPutSetsTheLastOrAddsAll) {
  const auto x = tensor<double>({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto places = tensor<int64_t>({3}, {3, 0, 3});
  const auto values = tensor<double>({3, 2}, {10, 20, 30, 40, 50, 60});
  EXPECT_EQ(index_put(x, places, values, 2, false).data, (Values{30, 40, 3, 4, 5, 6, 50, 60}));
  EXPECT_EQ(index_put(x, places, values, 2, true).data, (Values{31, 42, 3, 4, 5, 6, 67, 88}));
  const auto one = tensor<int64_t>({}, {1});
  const auto plane = tensor<double>({2, 2}, {9, 9, 9, 9});
  EXPECT_EQ(index_put(x, one, plane, 1, false).data, (Values{1, 2, 3, 4, 9, 9, 9, 9}));
}

}  // namespace
}  // namespace bp::conformance::reference
