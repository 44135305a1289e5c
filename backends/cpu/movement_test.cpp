// Tests copies and conversions where the method changes: tiles and their edges, rows that are
// streamed, and values that two roundings would get wrong.
#include <cmath>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Float16;

class Movement : public testing::Test {
 protected:
  bp_status copy(TestTensor& x, TestTensor& y) {
    return b_.launch(BP_OP_COPY, bp_copy_args{.x = &x, .y = &y});
  }

  // Copies between two orders of the axes of one shape; T holds any bits.
  template <typename T>
  void expect_copy(bp_dtype dtype, std::vector<int64_t> shape, const std::vector<size_t>& order,
                   int64_t gap = 1) {
    std::vector<int64_t> permuted(shape.size());
    for (size_t i = 0; i < order.size(); ++i) permuted[order[i]] = shape[i];
    TestTensor x(b_, dtype, permuted, gap), y(b_, dtype, shape);
    x.permute(order);
    for (int64_t i = 0; i < x.size(); ++i) x.at<T>(i) = static_cast<T>(i * 7919 + 1);
    ASSERT_EQ(copy(x, y), BP_OK) << b_.text;
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y.at<T>(i), static_cast<T>(i * 7919 + 1)) << "element " << i << " of " << shape[0];
    }
  }

  TestBackend b_{BACKEND_PATH, {{"threads", "3"}}};
};

TEST_F(Movement, TransposeElementsOfEveryWidthAroundTheEdgesOfTiles) {
  for (const int64_t rows : {1, 2, 3, 31, 64, 65, 129, 150}) {
    for (const int64_t cols : {1, 2, 7, 32, 63, 128, 133}) {
      expect_copy<uint8_t>(BP_U8, {rows, cols}, {1, 0});
      expect_copy<int16_t>(BP_I16, {rows, cols}, {1, 0});
      expect_copy<int32_t>(BP_I32, {rows, cols}, {1, 0});
      expect_copy<int64_t>(BP_I64, {rows, cols}, {1, 0});
    }
  }
}

TEST_F(Movement, PermuteAxesAndGaps) {
  const std::vector<std::vector<size_t>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                   {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const std::vector<size_t>& order : orders) {
    for (const int64_t gap : {1, 3}) {
      expect_copy<uint8_t>(BP_BOOL, {33, 70, 19}, order, gap);
      expect_copy<int16_t>(BP_I16, {33, 70, 19}, order, gap);
      expect_copy<int64_t>(BP_I64, {3, 130, 19}, order, gap);
    }
  }
}

// The kernel reads every second element in vectors, and then the rest of the row.
TEST_F(Movement, CloseGapsOfOneElement) {
  for (const int64_t cols : {1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 1000}) {
    expect_copy<uint8_t>(BP_U8, {3, cols}, {0, 1}, 2);
    expect_copy<int16_t>(BP_I16, {3, cols}, {0, 1}, 2);
    expect_copy<int32_t>(BP_I32, {3, cols}, {0, 1}, 2);
    expect_copy<int64_t>(BP_I64, {3, cols}, {0, 1}, 2);
  }
}

// The tensors have more than 24 MiB together, and begin at whole cache lines or between them.
TEST_F(Movement, StreamWhatIsLargerThanTheCaches) {
  expect_copy<int32_t>(BP_I32, {2048, 1600}, {1, 0});
  expect_copy<int32_t>(BP_I32, {2049, 1601}, {1, 0});
  expect_copy<int32_t>(BP_I32, {3, 1100003}, {0, 1});
  expect_copy<int32_t>(BP_I32, {8, 12, 512, 66}, {0, 2, 1, 3});
  expect_copy<int32_t>(BP_I32, {8, 12, 520, 64}, {0, 2, 1, 3});
  expect_copy<int16_t>(BP_I16, {3, 2300003}, {0, 1}, 2);
  TestTensor x(b_, BP_F32, {1, 3500001}), y(b_, BP_F64, {1, 3500001});
  for (int64_t i = 0; i < x.size(); ++i) x.at<float>(i) = static_cast<float>(i % 2048);
  ASSERT_EQ(copy(x, y), BP_OK);
  for (int64_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y.at<double>(i), static_cast<double>(i % 2048)) << i;
  }
}

// Rounding these values to f32 gives a tie, which a second rounding would resolve wrongly.
TEST_F(Movement, RoundOnceFromWideTypesToNarrowOnes) {
  const double tie16 = 1 + 0x1p-11, tie_bf16 = 1 + 0x1p-8;
  TestTensor x(b_, BP_F64, {6}), half(b_, BP_F16, {6}), brain(b_, BP_BF16, {6});
  x.set<double>({std::nextafter(tie16, 2), std::nextafter(tie16, 0), std::nextafter(tie_bf16, 2),
                 std::nextafter(tie_bf16, 0), 1e300, std::nextafter(-0x1p-25, -1)});
  ASSERT_EQ(copy(x, half), BP_OK);
  ASSERT_EQ(copy(x, brain), BP_OK);
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(half.at<Float16>(i).bits, Float16::from_f64(x.at<double>(i)).bits) << i;
    EXPECT_EQ(brain.at<BFloat16>(i).bits, BFloat16::from_f64(x.at<double>(i)).bits) << i;
  }
  EXPECT_EQ(half.at<Float16>(0).to_f32(), 1 + 0x1p-10f);
  EXPECT_EQ(brain.at<BFloat16>(2).to_f32(), 1 + 0x1p-7f);

  const int64_t big_tie = int64_t{1} << 62 | int64_t{1} << 54;
  TestTensor n(b_, BP_I64, {4}), rounded(b_, BP_BF16, {4});
  n.set<int64_t>({big_tie, big_tie + 1, -big_tie - 1, -big_tie + 1});
  ASSERT_EQ(copy(n, rounded), BP_OK);
  EXPECT_EQ(rounded.at<BFloat16>(0).to_f32(), 0x1p62f);
  EXPECT_EQ(rounded.at<BFloat16>(1).to_f32(), 0x1p62f + 0x1p55f);
  EXPECT_EQ(rounded.at<BFloat16>(2).to_f32(), -0x1p62f - 0x1p55f);
  EXPECT_EQ(rounded.at<BFloat16>(3).to_f32(), -0x1p62f);
  const bp_fill_args fill{
      .y = &rounded, .value_scalar = {.dtype = BP_I64, .bits = static_cast<uint64_t>(big_tie + 1)}};
  ASSERT_EQ(b_.launch(BP_OP_FILL, fill), BP_OK);
  EXPECT_EQ(rounded.at<BFloat16>(3).to_f32(), 0x1p62f + 0x1p55f);
}

}  // namespace
}  // namespace bp
