// Facts about shapes and strides.
#include "backplane/shell/shape.hpp"

#include <gtest/gtest.h>

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

TEST(Shape, IsContiguousWithoutElements) {
  EXPECT_FALSE(has_gaps({0, 3}, {7, 7}));
  EXPECT_FALSE(has_gaps({3, 0}, {7, 7}));
  EXPECT_FALSE(has_gaps({2, 0, 3}, {0, 3, 1}));
}

TEST(Shape, CountsMayWrapAround) {
  const int64_t far = int64_t{1} << 62;
  EXPECT_TRUE(has_gaps({2, far, far}, {1, far, 1}));
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
