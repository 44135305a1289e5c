#include "registry/tensors/layout.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace bp::core {
namespace {

bp_layout_flags class_of(std::vector<int64_t> shape, std::vector<int64_t> strides) {
  return layout_class({.shape = shape.data(),
                       .strides = strides.data(),
                       .ndim = static_cast<uint32_t>(shape.size())});
}

TEST(LayoutClass, IsTheFirstThatFits) {
  EXPECT_EQ(class_of({3, 4}, {4, 1}), BP_LAYOUT_CONTIGUOUS);
  EXPECT_EQ(class_of({}, {}), BP_LAYOUT_CONTIGUOUS);
  EXPECT_EQ(class_of({3, 4}, {1, 3}), BP_LAYOUT_DENSE_PERMUTED);
  EXPECT_EQ(class_of({2, 3, 4}, {3, 1, 6}), BP_LAYOUT_DENSE_PERMUTED);
  EXPECT_EQ(class_of({3, 4}, {0, 1}), BP_LAYOUT_BROADCAST);
  EXPECT_EQ(class_of({3, 4}, {1, 0}), BP_LAYOUT_BROADCAST);
  EXPECT_EQ(class_of({3, 4}, {8, 1}), BP_LAYOUT_INNER_DENSE);
  EXPECT_EQ(class_of({3, 4}, {8, 2}), BP_LAYOUT_ANY);
  EXPECT_EQ(class_of({3, 4}, {4, -1}), BP_LAYOUT_ANY);
  EXPECT_EQ(class_of({3, 4}, {-4, 1}), BP_LAYOUT_INNER_DENSE);
}

TEST(LayoutClass, IgnoresStridesOfExtentOne) {
  EXPECT_EQ(class_of({3, 1, 4}, {4, 77, 1}), BP_LAYOUT_CONTIGUOUS);
  EXPECT_EQ(class_of({1, 1}, {0, 0}), BP_LAYOUT_CONTIGUOUS);
  EXPECT_EQ(class_of({3, 4, 1}, {1, 3, 0}), BP_LAYOUT_DENSE_PERMUTED);
}

TEST(LayoutClass, OfAnEmptyTensorIsContiguous) {
  EXPECT_EQ(class_of({0, 4}, {9, 9}), BP_LAYOUT_CONTIGUOUS);
  EXPECT_EQ(class_of({4, 0}, {0, 0}), BP_LAYOUT_CONTIGUOUS);
}

TEST(LayoutClass, TellsWhetherThereIsMoreThanOneElement) {
  const auto has_one = [](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    bool result;
    layout_class({.shape = shape.data(),
                  .strides = strides.data(),
                  .ndim = static_cast<uint32_t>(shape.size())},
                 &result);
    return result;
  };
  EXPECT_TRUE(has_one({}, {}));
  EXPECT_TRUE(has_one({1, 1}, {5, 5}));
  EXPECT_TRUE(has_one({0, 3}, {9, 9}));
  EXPECT_FALSE(has_one({2}, {1}));
  EXPECT_FALSE(has_one({2}, {0}));
}

}  // namespace
}  // namespace bp::core
