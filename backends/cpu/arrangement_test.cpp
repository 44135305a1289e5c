// Tests the ops that put elements into other places where the method changes: the edges of vectors,
// rows that are joined or repeated, tensors that are streamed, and axes that lie across each other.
#include <algorithm>
#include <functional>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

// Returns the place in x of an element of a row of y, or -1 if the element has the value of the
// call.
using Source = std::function<int64_t(int64_t col)>;

class Arrangement : public testing::Test {
 protected:
  template <typename T>
  static void fill(TestTensor& x) {
    for (int64_t i = 0; i < x.size(); ++i) x.at<T>(i) = static_cast<T>(i * 7919 + 1);
  }

  // Expects that each row of y has the elements of the same row of x that `source` names.
  template <typename T>
  static void expect_rows(TestTensor& x, TestTensor& y, T value, const Source& source) {
    const int64_t x_cols = x.shape().back(), cols = y.shape().back();
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t from = source(i % cols);
      const T expected = from < 0 ? value : x.at<T>(i / cols * x_cols + from);
      ASSERT_EQ(y.at<T>(i), expected) << "element " << i << " of rows of " << cols;
    }
  }

  template <typename T>
  void expect_flip(bp_dtype dtype, int64_t rows, int64_t cols, int64_t gap = 1) {
    TestTensor x(b_, dtype, {rows, cols}, gap), y(b_, dtype, {rows, cols});
    fill<T>(x);
    ASSERT_EQ(b_.launch(BP_OP_FLIP, bp_flip_args{.x = &x, .y = &y, .axis = 1}), BP_OK) << b_.text;
    expect_rows<T>(x, y, T{0}, [&](int64_t col) { return cols - 1 - col; });
  }

  template <typename T>
  void expect_pad(bp_dtype dtype, int64_t rows, int64_t cols, int64_t before, int64_t after) {
    TestTensor x(b_, dtype, {rows, cols}), y(b_, dtype, {rows, before + cols + after});
    fill<T>(x);
    bp_pad_args args{.x = &x, .y = &y, .axis = 1, .before = before, .after = after};
    args.value_scalar = {.dtype = BP_I64, .bits = 5};
    args.mode = BP_PAD_MODE_CONSTANT;
    ASSERT_EQ(b_.launch(BP_OP_PAD, args), BP_OK) << b_.text;
    expect_rows<T>(x, y, T{5}, [&](int64_t col) {
      const int64_t at = col - before;
      return at < 0 || at >= cols ? -1 : at;
    });
    args.mode = BP_PAD_MODE_REPLICATE;
    ASSERT_EQ(b_.launch(BP_OP_PAD, args), BP_OK) << b_.text;
    expect_rows<T>(x, y, T{5},
                   [&](int64_t col) { return std::clamp<int64_t>(col - before, 0, cols - 1); });
  }

  // The element [i, j] of a matrix is kept where j - i is not above 0, or not below 0.
  template <typename Args>
  void expect_triangle(uint32_t op, bool is_lower, TestTensor& x, TestTensor& y) {
    fill<int32_t>(x);
    ASSERT_EQ(b_.launch(op, Args{.x = &x, .y = &y}), BP_OK) << b_.text;
    const int64_t cols = y.shape()[1];
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t distance = i % cols - i / cols;
      const bool is_kept = is_lower ? distance <= 0 : distance >= 0;
      ASSERT_EQ(y.at<int32_t>(i), is_kept ? x.at<int32_t>(i) : 0) << "element " << i;
    }
  }

  TestBackend b_{BACKEND_PATH, {{"threads", "3"}}};
};

TEST_F(Arrangement, ReverseRowsOfEveryWidthAroundTheEdgesOfVectors) {
  for (const int64_t cols : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 1000}) {
    expect_flip<uint8_t>(BP_U8, 3, cols);
    expect_flip<int16_t>(BP_I16, 3, cols);
    expect_flip<int32_t>(BP_I32, 3, cols);
    expect_flip<int64_t>(BP_I64, 3, cols);
    expect_flip<int32_t>(BP_I32, 3, cols, 2);
  }
}

// The tensors have more than 24 MiB together, and begin at whole cache lines or between them.
TEST_F(Arrangement, ReverseWhatIsLargerThanTheCaches) {
  expect_flip<int32_t>(BP_I32, 3, 1100003);
  expect_flip<int32_t>(BP_I32, 2048, 1600);
}

TEST_F(Arrangement, KeepTrianglesOfMatricesThatAreLargerThanTheCaches) {
  TestTensor x(b_, BP_I32, {2049, 1601}), y(b_, BP_I32, {2049, 1601});
  expect_triangle<bp_tril_args>(BP_OP_TRIL, true, x, y);
  expect_triangle<bp_triu_args>(BP_OP_TRIU, false, x, y);
}

TEST_F(Arrangement, NameClassesInRowsOfEachSize) {
  for (const int64_t classes : {1, 10, 128, 5000, 70000}) {
    const int64_t rows = classes > 128 ? 97 : 50000;  // The largest results are streamed.
    TestTensor indices(b_, BP_I64, {rows}), y(b_, BP_F32, {rows, classes});
    for (int64_t i = 0; i < rows; ++i) indices.at<int64_t>(i) = i * 31 % (classes + 2) - 1;
    const bp_one_hot_args args{.indices = &indices, .y = &y, .num_classes = classes};
    ASSERT_EQ(b_.launch(BP_OP_ONE_HOT, args), BP_OK) << b_.text;
    for (int64_t i = 0; i < y.size(); ++i) {
      const bool is_named = indices.at<int64_t>(i / classes) == i % classes;
      ASSERT_EQ(y.at<float>(i), is_named ? 1.0f : 0.0f) << "element " << i << " of " << classes;
    }
  }
}

// Each row of y begins 28 bytes behind a row of x, modulo a page.
TEST_F(Arrangement, CopyRowsThatBeginOneLineFurtherInAPage) {
  TestTensor x(b_, BP_I32, {5, 1024}), y(b_, BP_I32, {5, 1024});
  fill<int32_t>(x);
  ASSERT_EQ(b_.launch(BP_OP_ROLL, bp_roll_args{.x = &x, .y = &y, .shift = 7, .axis = 1}), BP_OK);
  expect_rows<int32_t>(x, y, 0, [](int64_t col) { return (col + 1017) % 1024; });
}

TEST_F(Arrangement, JoinShortRowsAndCopyLongOnes) {
  for (const int64_t cols : {1, 2, 31, 64, 1023, 5000}) {
    expect_pad<uint8_t>(BP_U8, 37, cols, 1, 1);
    expect_pad<int16_t>(BP_I16, 37, cols, 3, 0);
    expect_pad<int32_t>(BP_I32, 37, cols, 0, 70);
    expect_pad<int64_t>(BP_I64, 37, cols, 2, 1);
  }
  expect_pad<int32_t>(BP_I32, 2048, 1600, 1, 2);
}

TEST_F(Arrangement, RepeatShortRows) {
  for (const int64_t cols : {1, 3, 16, 700, 3000}) {
    for (const int64_t count : {1, 2, 7, 129}) {
      TestTensor x(b_, BP_I16, {9, cols}), y(b_, BP_I16, {9, cols * count});
      fill<int16_t>(x);
      const bp_tile_args args{.x = &x, .y = &y, .count = count, .axis = 1};
      ASSERT_EQ(b_.launch(BP_OP_TILE, args), BP_OK) << b_.text;
      expect_rows<int16_t>(x, y, 0, [&](int64_t col) { return col % cols; });
    }
  }
}

TEST_F(Arrangement, KeepTrianglesOfMatricesThatLieAcrossEachOther) {
  for (const int64_t rows : {1, 33, 200}) {
    for (const int64_t cols : {1, 65, 130}) {
      for (const bool is_x_turned : {false, true}) {
        for (const bool is_y_turned : {false, true}) {
          TestTensor x(b_, BP_I32, is_x_turned ? std::vector{cols, rows} : std::vector{rows, cols});
          TestTensor y(b_, BP_I32, is_y_turned ? std::vector{cols, rows} : std::vector{rows, cols});
          if (is_x_turned) x.permute({1, 0});
          if (is_y_turned) y.permute({1, 0});
          expect_triangle<bp_tril_args>(BP_OP_TRIL, true, x, y);
          expect_triangle<bp_triu_args>(BP_OP_TRIU, false, x, y);
        }
      }
    }
  }
}

}  // namespace
}  // namespace bp
