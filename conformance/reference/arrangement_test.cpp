// Tests the ops that put elements into other places against results worked out by hand.
#include "conformance/reference/arrangement.hpp"

#include <gtest/gtest.h>

namespace bp::conformance::reference {
namespace {

using Values = std::vector<double>;

Array<double> matrix() {
  Array<double> x({2, 3});
  x.data = {1, 2, 3, 4, 5, 6};
  return x;
}

TEST(Arrangement, FlipTurnsOneAxis) {
  EXPECT_EQ(flip(matrix(), 0).data, (Values{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(flip(matrix(), 1).data, (Values{3, 2, 1, 6, 5, 4}));
}

TEST(Arrangement, RollMovesToTheEndAndComesInAgain) {
  EXPECT_EQ(roll(matrix(), 1, 1).data, (Values{3, 1, 2, 6, 4, 5}));
  EXPECT_EQ(roll(matrix(), -1, 1).data, (Values{2, 3, 1, 5, 6, 4}));
  EXPECT_EQ(roll(matrix(), 7, 1).data, roll(matrix(), 1, 1).data);
  EXPECT_EQ(roll(matrix(), -5, 0).data, (Values{4, 5, 6, 1, 2, 3}));
}

TEST(Arrangement, TrianglesHaveTheirDiagonal) {
  EXPECT_EQ(triangle(matrix(), Triangle::kLower, 0, 0.0).data, (Values{1, 0, 0, 4, 5, 0}));
  EXPECT_EQ(triangle(matrix(), Triangle::kLower, -1, 0.0).data, (Values{0, 0, 0, 4, 0, 0}));
  EXPECT_EQ(triangle(matrix(), Triangle::kUpper, 0, 0.0).data, (Values{1, 2, 3, 0, 5, 6}));
  EXPECT_EQ(triangle(matrix(), Triangle::kUpper, 2, 0.0).data, (Values{0, 0, 3, 0, 0, 0}));
}

TEST(Arrangement, PadContinuesByItsMode) {
  using enum Pads::Mode;
  const Array<double> y = pad(matrix(), {1, 1, 2, kConstant}, 9.0);
  EXPECT_EQ(y.shape, (Shape{2, 6}));
  EXPECT_EQ(y.data, (Values{9, 1, 2, 3, 9, 9, 9, 4, 5, 6, 9, 9}));
  EXPECT_EQ(pad(matrix(), {1, 1, 2, kReflect}, 9.0).data,
            (Values{2, 1, 2, 3, 2, 1, 5, 4, 5, 6, 5, 4}));
  EXPECT_EQ(pad(matrix(), {1, 2, 1, kReplicate}, 9.0).data,
            (Values{1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 6, 6}));
}

TEST(Arrangement, OneHotIsZeroForWhatNamesNoClass) {
  Array<int64_t> indices({3});
  indices.data = {1, -1, 2};
  EXPECT_EQ(one_hot<double>(indices, 2).data, (Values{0, 1, 0, 0, 0, 0}));
}

TEST(Arrangement, MaskedFillAndTile) {
  Array<int64_t> mask({2, 3});
  mask.data = {1, 0, 0, 0, 1, 1};
  EXPECT_EQ(masked_fill(matrix(), mask, 9.0).data, (Values{9, 2, 3, 4, 9, 9}));
  EXPECT_EQ(tile(matrix(), 2, 1).data, (Values{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(tile(matrix(), 2, 0).data, (Values{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(tile(matrix(), 0, 0).shape, (Shape{0, 3}));
}

}  // namespace
}  // namespace bp::conformance::reference
