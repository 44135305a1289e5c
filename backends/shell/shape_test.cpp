// Facts about shapes and strides.
#include "backplane/shell/shape.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bp {
namespace {

bool has_gaps(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  return !is_contiguous(static_cast<uint32_t>(shape.size()), shape.data(), strides.data());
}

TEST(Shape, IsContiguousInRowMajorOrderWithoutGaps) {
  EXPECT_FALSE(has_gaps({}, {}));
  EXPECT_FALSE(has_gaps({2, 3}, {3, 1}));
  EXPECT_TRUE(has_gaps({2, 3}, {4, 1}));
  EXPECT_TRUE(has_gaps({2, 3}, {1, 2}));
  EXPECT_TRUE(has_gaps({2, 3}, {3, 0}));
  EXPECT_FALSE(has_gaps({2, 1, 3}, {3, 99, 1})) << "the stride of an extent of 1 is free";
}

TEST(Shape, NamesAnIndexThatItsAxisLacks) {
  EXPECT_EQ(bad_index_text("gather", "indices", 5, -7, 4),
            "gather: element 5 of indices is -7, not from 0 to 3");
}

TEST(Shape, IsContiguousWithoutElements) {
  EXPECT_FALSE(has_gaps({0, 3}, {7, 7}));
  EXPECT_FALSE(has_gaps({3, 0}, {7, 7}));
  EXPECT_FALSE(has_gaps({2, 0, 3}, {0, 3, 1}));
}

constexpr int64_t kFar = int64_t{1} << 32;

// Returns the number of elements, or the text of the refusal.
std::string count(const std::vector<int64_t>& shape) {
  try {
    return std::to_string(element_count(static_cast<uint32_t>(shape.size()), shape.data()));
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
    return e.what();
  }
}

TEST(Shape, RefusesMoreElementsThan64BitsCount) {
  EXPECT_EQ(count({kFar, kFar / 4}), std::to_string(int64_t{1} << 62));
  EXPECT_EQ(count({kFar, kFar}),
            "a tensor has shape [4294967296, 4294967296], and 64 bits do not hold its number of "
            "elements");
  EXPECT_EQ(count({kFar, kFar, 0}), "0") << "no element is too many";
}

TEST(Shape, RefusesMoreBytesThan64BitsCount) {
  const int64_t shape[] = {kFar, kFar / 8}, empty[] = {kFar, kFar, 0};
  EXPECT_EQ(dense_size_bytes(2, shape, 2), int64_t{1} << 62);
  EXPECT_EQ(dense_size_bytes(3, empty, 8), 0);
  try {
    dense_size_bytes(2, shape, 4);
    FAIL() << "63 bits do not hold 2^63";
  } catch (const TooManyElements& e) {
    EXPECT_STREQ(e.what(),
                 "a tensor has shape [4294967296, 536870912], and 64 bits do not hold its number "
                 "of bytes");
  }
}

TEST(Shape, IsNotContiguousWithMoreElementsThan64BitsCount) {
  EXPECT_TRUE(has_gaps({2, kFar, kFar}, {0, kFar, 1})) << "the stride is 2^64 in 64 bits";
  EXPECT_FALSE(has_gaps({0, kFar, kFar}, {0, kFar, 1})) << "it has no elements";
}

TEST(Shape, ContiguousStridesAreRefusedWhere64BitsDoNotHoldThem) {
  const int64_t shape[3] = {2, kFar, kFar}, empty[3] = {0, kFar, kFar};
  int64_t strides[3];
  EXPECT_THROW(set_contiguous_strides(3, shape, strides), TooManyElements);
  EXPECT_NO_THROW(set_contiguous_strides(3, empty, strides));
}

TEST(Shape, ContiguousStridesAreContiguous) {
  const std::vector<int64_t> shape{4, 1, 2, 3};
  std::vector<int64_t> strides(4);
  set_contiguous_strides(4, shape.data(), strides.data());
  EXPECT_EQ(strides, (std::vector<int64_t>{6, 6, 3, 1}));
  EXPECT_EQ(element_count(4, shape.data()), 24);
  EXPECT_EQ(element_count(0, nullptr), 1);
}

}  // namespace
}  // namespace bp
