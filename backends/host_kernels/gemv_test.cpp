// Tests products by a vector against plain loops, for every dtype, both layouts of a matrix, and
// vectors on either side.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Float16;
using kernels::narrow;
using kernels::widen;

constexpr uint32_t kSeed = 5;

class Gemv : public testing::Test {
 protected:
  // Fills a tensor with small integers, so that every sum is exact.
  template <typename T>
  static void fill(TestTensor& tensor, uint32_t seed) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.at<T>(i) = narrow<T>(static_cast<decltype(widen(T{}))>(random() % 3) - 1);
    }
  }

  void run(uint32_t op, const auto& args) {
    ASSERT_EQ(backend_.launch(op, args), BP_OK) << backend_.text;
    ASSERT_EQ(backend_.streams->synchronize(backend_.streams->self, backend_.default_stream(),
                                            UINT64_MAX),
              BP_OK);
  }

  // Computes y (rows) = a (rows, depth) by x (depth), or the transposed product.
  template <typename T>
  void expect_product(bp_dtype dtype, int64_t rows, int64_t depth, bool has_dense_columns,
                      bool is_row) {
    const bool lies_across = has_dense_columns != is_row;
    const std::vector<int64_t> a_shape =
        is_row ? std::vector<int64_t>{depth, rows} : std::vector<int64_t>{rows, depth};
    TestTensor a(backend_, dtype,
                 lies_across ? std::vector<int64_t>{a_shape[1], a_shape[0]} : a_shape);
    if (lies_across) a.permute({1, 0});
    TestTensor x(backend_, dtype,
                 is_row ? std::vector<int64_t>{1, depth} : std::vector<int64_t>{depth, 1}, 2);
    TestTensor y(backend_, dtype,
                 is_row ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{rows, 1}, 3);
    fill<T>(a, kSeed);
    fill<T>(x, kSeed + 1);
    run(BP_OP_MATMUL, is_row ? bp_matmul_args{.a = &x, .b = &a, .y = &y}
                             : bp_matmul_args{.a = &a, .b = &x, .y = &y});
    for (int64_t row = 0; row < rows; ++row) {
      double expected = 0;
      for (int64_t k = 0; k < depth; ++k) {
        expected += static_cast<double>(widen(a.at<T>(is_row ? k * rows + row : row * depth + k))) *
                    static_cast<double>(widen(x.at<T>(k)));
      }
      using Wide = decltype(widen(T{}));
      ASSERT_EQ(static_cast<double>(widen(y.at<T>(row))),
                static_cast<double>(widen(narrow<T>(static_cast<Wide>(expected)))))
          << "row " << row << " of " << rows << ", depth " << depth << ", dense columns "
          << has_dense_columns << ", row vector " << is_row << ", seed " << kSeed;
    }
  }

  template <typename T>
  void expect_products(bp_dtype dtype) {
    // The extents leave parts of vectors and of blocks, and some depths are divided.
    const int64_t extents[][2] = {{1, 50},   {3, 16},   {37, 1},    {64, 64},
                                  {101, 67}, {2070, 3}, {2100, 20}, {3, 32769}};
    for (const auto& [rows, depth] : extents) {
      for (const bool has_dense_columns : {false, true}) {
        for (const bool is_row : {false, true}) {
          expect_product<T>(dtype, rows, depth, has_dense_columns, is_row);
        }
      }
    }
  }

  TestBackend backend_{BACKEND_PATH};
};

TEST_F(Gemv, MultipliesAsItLiesInEveryDtype) {
  expect_products<float>(BP_F32);
  expect_products<double>(BP_F64);
  expect_products<Float16>(BP_F16);
  expect_products<BFloat16>(BP_BF16);
}

TEST_F(Gemv, WidensANarrowMatrixForAWideVector) {
  TestTensor a(backend_, BP_BF16, {70, 90}), x(backend_, BP_F32, {90, 1}),
      y(backend_, BP_F32, {70, 1});
  fill<BFloat16>(a, kSeed);
  for (int64_t k = 0; k < 90; ++k) x.at<float>(k) = static_cast<float>(k) + 0.5f;
  run(BP_OP_MATMUL, bp_matmul_args{.a = &a, .b = &x, .y = &y});
  for (int64_t row = 0; row < 70; ++row) {
    float expected = 0;
    for (int64_t k = 0; k < 90; ++k)
      expected += widen(a.at<BFloat16>(row * 90 + k)) * x.at<float>(k);
    ASSERT_EQ(y.at<float>(row), expected) << "row " << row << ", seed " << kSeed;
  }
}

TEST_F(Gemv, LinearOfOneRowAddsBiasAndActivates) {
  constexpr int64_t kDepth = 129, kCols = 77;
  TestTensor x(backend_, BP_F32, {1, kDepth}), w(backend_, BP_F32, {kCols, kDepth}),
      bias(backend_, BP_F32, {kCols}, 2), y(backend_, BP_F32, {1, kCols}, 2),
      preactivation(backend_, BP_F32, {1, kCols});
  fill<float>(x, kSeed);
  fill<float>(w, kSeed + 1);
  fill<float>(bias, kSeed + 2);
  run(BP_OP_LINEAR, bp_linear_args{.x = &x,
                                   .weight = &w,
                                   .bias = &bias,
                                   .y = &y,
                                   .activation = BP_LINEAR_ACTIVATION_RELU,
                                   .preactivation = &preactivation});
  for (int64_t i = 0; i < kCols; ++i) {
    float sum = bias.at<float>(i);
    for (int64_t k = 0; k < kDepth; ++k) sum += x.at<float>(k) * w.at<float>(i * kDepth + k);
    ASSERT_EQ(preactivation.at<float>(i), sum) << "element " << i << ", seed " << kSeed;
    ASSERT_EQ(y.at<float>(i), std::max(sum, 0.0f)) << "element " << i << ", seed " << kSeed;
  }
}

}  // namespace
}  // namespace bp
