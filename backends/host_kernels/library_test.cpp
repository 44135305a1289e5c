// Tests kernels of matrices, windows, rows and indices, through the tables of the plugin.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kSeed = 11;

// Fills a tensor with small integers. Every sum is then exact, so that results compare equal.
template <typename T>
void fill(TestTensor& tensor, uint32_t seed = kSeed) {
  std::mt19937 random(seed);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.at<T>(i) = static_cast<T>(static_cast<int>(random() % 9) - 4);
  }
}

template <typename T>
T dot(TestTensor& a, TestTensor& b) {
  T sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.at<T>(i) * b.at<T>(i);
  return sum;
}

class LibraryTest : public ::testing::Test {
 protected:
  // Returns the status of the stream after `op`.
  template <typename Args>
  bp_status run(uint32_t op, const Args& args) {
    EXPECT_EQ(backend_.launch(op, args), BP_OK) << backend_.text;
    return backend_.streams->synchronize(backend_.streams->self, backend_.default_stream(),
                                         UINT64_MAX);
  }

  template <typename T>
  // NOLINTNEXTLINE(readability-function-size): the tensors and extents of a product.
  void expect_product(TestTensor& a, TestTensor& b, TestTensor& y, int64_t batches, int64_t rows,
                      int64_t cols, int64_t depth) {
    fill<T>(a);
    fill<T>(b, kSeed + 1);
    ASSERT_EQ(run(BP_OP_MATMUL, bp_matmul_args{.a = &a, .b = &b, .y = &y}), BP_OK);
    for (int64_t i = 0; i < batches * rows * cols; ++i) {
      const int64_t col = i % cols, row = i / cols, batch = row / rows;
      T expected = 0;
      for (int64_t k = 0; k < depth; ++k) {
        expected += a.at<T>(row * depth + k) * b.at<T>((batch * depth + k) * cols + col);
      }
      ASSERT_EQ(y.at<T>(i), expected) << "element " << i << ", seed " << kSeed;
    }
  }

  template <typename T>
  void expect_products_of_all_layouts(bp_dtype dtype) {
    for (const int64_t gap : {1, 2}) {
      for (const bool is_transposed : {false, true}) {
        TestTensor a(backend_, dtype, {3, 70, 33}, gap), b(backend_, dtype, {3, 19, 70}, gap),
            y(backend_, dtype, {33, 19, 3}, gap);
        a.permute({0, 2, 1});
        b.permute({0, 2, 1});
        y.permute({2, 0, 1});
        if (is_transposed) {
          TestTensor one(backend_, dtype, {1, 70, 19}, gap), dense(backend_, dtype, {3, 33, 19});
          one.expand(0, 3);
          expect_product<T>(a, one, dense, 3, 33, 19, 70);
        } else {
          expect_product<T>(a, b, y, 3, 33, 19, 70);
        }
      }
    }
  }

  // Tests a product over several blocks of depth. Every operand has gaps, and the columns of y are
  // dense.
  template <typename T>
  void expect_preactivation(bp_dtype dtype) {
    constexpr int64_t kRows = 7, kDepth = 600, kCols = 40;
    TestTensor x(backend_, dtype, {kRows, kDepth}, 2), w(backend_, dtype, {kCols, kDepth}),
        bias(backend_, dtype, {kCols}, 2), y(backend_, dtype, {kCols, kRows}),
        preactivation(backend_, dtype, {kRows, kCols}, 3);
    y.permute({1, 0});
    fill<T>(x);
    fill<T>(w, kSeed + 1);
    fill<T>(bias, kSeed + 2);
    ASSERT_EQ(run(BP_OP_LINEAR, bp_linear_args{.x = &x,
                                               .weight = &w,
                                               .bias = &bias,
                                               .y = &y,
                                               .activation = BP_LINEAR_ACTIVATION_RELU,
                                               .preactivation = &preactivation}),
              BP_OK);
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      T sum = bias.at<T>(i % kCols);
      for (int64_t k = 0; k < kDepth; ++k) {
        sum += x.at<T>(i / kCols * kDepth + k) * w.at<T>(i % kCols * kDepth + k);
      }
      ASSERT_EQ(preactivation.at<T>(i), sum) << "element " << i << ", seed " << kSeed;
      ASSERT_EQ(y.at<T>(i), std::max<T>(sum, 0)) << "element " << i << ", seed " << kSeed;
    }
  }

  template <typename T>
  void expect_adjoint_gradients(bp_dtype dtype) {
    const int64_t stride[] = {2, 1}, padding[] = {1, 0, 2, 1}, dilation[] = {1, 2};
    const int64_t input[] = {9, 8}, kernel[] = {3, 2};
    TestTensor x(backend_, dtype, {2, 6, 9, 8}), w(backend_, dtype, {10, 3, 3, 2}),
        y(backend_, dtype, {2, 10, 5, 7}), out(backend_, dtype, {2, 10, 5, 7}, 3),
        grad_x(backend_, dtype, {2, 9, 8, 6}), grad_w(backend_, dtype, {10, 3, 3, 2}, 2);
    grad_x.permute({0, 3, 1, 2});
    fill<T>(x);
    fill<T>(w, kSeed + 1);
    fill<T>(y, kSeed + 2);
    bp_convolution_args forward{.x = &x, .weight = &w, .y = &out};
    bp_convolution_backward_input_args to_x{
        .grad_y = &y, .weight = &w, .grad_x = &grad_x, .input_size_count = 2, .input_size = input};
    bp_convolution_backward_weight_args to_w{.grad_y = &y,
                                             .x = &x,
                                             .grad_weight = &grad_w,
                                             .kernel_size_count = 2,
                                             .kernel_size = kernel};
    const auto set_window = [&](auto& args) {
      args.stride_count = args.dilation_count = 2;
      args.padding_count = 4;
      args.stride = stride;
      args.padding = padding;
      args.dilation = dilation;
      args.groups = 2;
    };
    set_window(forward);
    set_window(to_x);
    set_window(to_w);
    ASSERT_EQ(run(BP_OP_CONVOLUTION, forward), BP_OK);
    ASSERT_EQ(run(BP_OP_CONVOLUTION_BACKWARD_INPUT, to_x), BP_OK);
    ASSERT_EQ(run(BP_OP_CONVOLUTION_BACKWARD_WEIGHT, to_w), BP_OK);
    const T expected = dot<T>(out, y);
    EXPECT_NE(expected, T{0});
    EXPECT_EQ(dot<T>(grad_x, x), expected) << "seed " << kSeed;
    EXPECT_EQ(dot<T>(grad_w, w), expected) << "seed " << kSeed;
  }

  TestBackend backend_{BACKEND_PATH};
};

TEST_F(LibraryTest, MultipliesMatricesOfAnyLayout) {
  expect_products_of_all_layouts<float>(BP_F32);
  expect_products_of_all_layouts<double>(BP_F64);
}

// oneDNN does not compute these without AVX-512; the test cpu.library_avx2_test runs them so.
TEST_F(LibraryTest, MultipliesLinesThatLiePowersOfTwoApart) {
  constexpr int64_t kDepth = 33, kMany = 512, kFew = 128;
  TestTensor a(backend_, BP_F32, {kDepth, kMany}), few(backend_, BP_F32, {kDepth, kFew}),
      y(backend_, BP_F32, {kMany, kFew}), plain(backend_, BP_F32, {kFew, kDepth}),
      b(backend_, BP_F32, {kDepth, kMany}), wide(backend_, BP_F32, {kFew, kMany});
  a.permute({1, 0});
  expect_product<float>(a, few, y, 1, kMany, kFew, kDepth);
  expect_product<float>(plain, b, wide, 1, kFew, kMany, kDepth);
}

TEST_F(LibraryTest, MultipliesBytesExactly) {
  constexpr int64_t kRows = 3, kCols = 70, kDepth = 1000;
  TestTensor a{backend_, BP_I8, {kRows, kDepth}}, b{backend_, BP_I8, {kDepth, kCols}},
      y{backend_, BP_I32, {kRows, kCols}};
  std::mt19937 random(kSeed);
  const auto fill_bytes = [&](TestTensor& t) {
    for (int64_t i = 0; i < t.size(); ++i) {
      const int value = i % 3 == 0 ? -128 : static_cast<int>(random() % 256) - 128;
      t.at<int8_t>(i) = static_cast<int8_t>(value);
    }
  };
  fill_bytes(a);
  fill_bytes(b);
  // The first kernel of matmul takes floats alone.
  ASSERT_EQ(backend_.launch(backend_.kernel("matmul.integers"),
                            bp_matmul_args{.a = &a, .b = &b, .y = &y}, backend_.default_stream()),
            BP_OK);
  ASSERT_EQ(
      backend_.streams->synchronize(backend_.streams->self, backend_.default_stream(), UINT64_MAX),
      BP_OK);
  for (int64_t i = 0; i < y.size(); ++i) {
    int32_t expected = 0;
    for (int64_t k = 0; k < kDepth; ++k) {
      expected += a.at<int8_t>(i / kCols * kDepth + k) * b.at<int8_t>(k * kCols + i % kCols);
    }
    ASSERT_EQ(y.at<int32_t>(i), expected) << "element " << i << ", seed " << kSeed;
  }
}

TEST_F(LibraryTest, ASumOfNoProductsIsZero) {
  for (const bp_dtype dtype : {BP_F32, BP_F64}) {
    TestTensor a(backend_, dtype, {4, 0}), b(backend_, dtype, {0, 3}), y(backend_, dtype, {4, 3});
    for (int64_t i = 0; i < 12; ++i) dtype == BP_F32 ? y.at<float>(i) = 7 : y.at<double>(i) = 7;
    ASSERT_EQ(run(BP_OP_MATMUL, bp_matmul_args{.a = &a, .b = &b, .y = &y}), BP_OK);
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(dtype == BP_F32 ? static_cast<double>(y.at<float>(i)) : y.at<double>(i), 0.0);
    }
  }
}

TEST_F(LibraryTest, MultipliesMoreShapesThanItRemembers) {
  for (int64_t n = 1; n <= 700; ++n) {
    TestTensor a(backend_, BP_F32, {2, n}), b(backend_, BP_F32, {n, 2}),
        y(backend_, BP_F32, {2, 2});
    for (int64_t i = 0; i < 2 * n; ++i) a.at<float>(i) = b.at<float>(i) = 1;
    ASSERT_EQ(run(BP_OP_MATMUL, bp_matmul_args{.a = &a, .b = &b, .y = &y}), BP_OK);
    ASSERT_EQ(y.at<float>(3), static_cast<float>(n));
  }
}

TEST_F(LibraryTest, LinearAddsBiasAndKeepsNanThroughRelu) {
  TestTensor x(backend_, BP_F32, {2, 2}), w(backend_, BP_F32, {2, 2}),
      bias(backend_, BP_F32, {2}, 3), y(backend_, BP_F32, {2, 2});
  x.set<float>({1, 2, kNaN, 1});
  w.set<float>({1, 1, -5, 1});
  bias.set<float>({10, 0.5f});
  ASSERT_EQ(run(BP_OP_LINEAR, bp_linear_args{.x = &x,
                                             .weight = &w,
                                             .bias = &bias,
                                             .y = &y,
                                             .activation = BP_LINEAR_ACTIVATION_RELU}),
            BP_OK);
  EXPECT_EQ(y.at<float>(0), 13);
  EXPECT_EQ(y.at<float>(1), 0);
  EXPECT_TRUE(std::isnan(y.at<float>(2)));
  EXPECT_TRUE(std::isnan(y.at<float>(3)));
}

TEST_F(LibraryTest, LinearGivesWhatItActivates) {
  expect_preactivation<float>(BP_F32);
  expect_preactivation<double>(BP_F64);
}

TEST_F(LibraryTest, GradientsOfConvolutionAreItsAdjoints) {
  expect_adjoint_gradients<float>(BP_F32);
  expect_adjoint_gradients<double>(BP_F64);
}

// There are so many images that they are converted to f32 in parts, and the last part is shorter.
TEST_F(LibraryTest, ConvolvesManyImagesOfNarrowElements) {
  constexpr int64_t kImages = 5, kRows = 700, kCols = 1024;
  const int64_t one[] = {1, 1}, zero[] = {0, 0, 0, 0};
  TestTensor x(backend_, BP_BF16, {kImages, 1, kRows, kCols}),
      y(backend_, BP_BF16, {kImages, 1, kRows, kCols}), w(backend_, BP_BF16, {1, 1, 1, 1}),
      grad_w(backend_, BP_F32, {1, 1, 1, 1}), grad_x(backend_, BP_F32, {kImages, 1, kRows, kCols});
  std::mt19937 random(kSeed);
  double dot = 0;
  BFloat16* const first_x = &x.at<BFloat16>(0);
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(random() % 9) - 4.0f;
    first_x[i] = BFloat16::from_f32(value);
    dot += 3.0 * value * value;
  }
  w.set<BFloat16>({BFloat16::from_f32(3)});
  ASSERT_EQ(run(BP_OP_CONVOLUTION, bp_convolution_args{.x = &x,
                                                       .weight = &w,
                                                       .y = &y,
                                                       .stride = one,
                                                       .padding = zero,
                                                       .dilation = one,
                                                       .groups = 1}),
            BP_OK);
  const BFloat16* const first_y = &y.at<BFloat16>(0);
  for (int64_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(first_y[i].to_f32(), 3 * first_x[i].to_f32()) << "element " << i;
  }
  ASSERT_EQ(run(BP_OP_CONVOLUTION_BACKWARD_WEIGHT,
                bp_convolution_backward_weight_args{.grad_y = &y,
                                                    .x = &x,
                                                    .grad_weight = &grad_w,
                                                    .kernel_size = one,
                                                    .stride = one,
                                                    .padding = zero,
                                                    .dilation = one,
                                                    .groups = 1}),
            BP_OK);
  EXPECT_NEAR(grad_w.at<float>(0), dot, 1e-5 * dot) << "seed " << kSeed;
  const int64_t size[] = {kRows, kCols};
  ASSERT_EQ(
      run(BP_OP_CONVOLUTION_BACKWARD_INPUT, bp_convolution_backward_input_args{.grad_y = &y,
                                                                               .weight = &w,
                                                                               .grad_x = &grad_x,
                                                                               .input_size = size,
                                                                               .stride = one,
                                                                               .padding = zero,
                                                                               .dilation = one,
                                                                               .groups = 1}),
      BP_OK);
  const float* const first_grad = &grad_x.at<float>(0);
  for (int64_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(first_grad[i], 9 * first_x[i].to_f32()) << "element " << i;
  }
}

TEST_F(LibraryTest, AConvolutionOfNoChannelsIsItsBias) {
  const int64_t one[] = {1}, zero[] = {0, 0};
  TestTensor x(backend_, BP_F32, {1, 0, 4}), w(backend_, BP_F32, {2, 0, 1}),
      bias(backend_, BP_F32, {2}), y(backend_, BP_F32, {1, 2, 4});
  bias.set<float>({3, -1});
  ASSERT_EQ(run(BP_OP_CONVOLUTION, bp_convolution_args{.x = &x,
                                                       .weight = &w,
                                                       .bias = &bias,
                                                       .y = &y,
                                                       .stride_count = 1,
                                                       .stride = one,
                                                       .padding_count = 2,
                                                       .padding = zero,
                                                       .dilation_count = 1,
                                                       .dilation = one,
                                                       .groups = 1}),
            BP_OK);
  EXPECT_EQ(y.get<float>(), (std::vector<float>{3, 3, 3, 3, -1, -1, -1, -1}));
}

TEST_F(LibraryTest, SoftmaxSpreadsNanAndInfinityOverTheirRowAlone) {
  for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1}, {1, 0}}) {
    TestTensor x(backend_, BP_F32, {4, 4}), y(backend_, BP_F32, {4, 4});
    x.permute(order);
    y.permute(order);
    x.set<float>({0, 0, 0, 0, 1, kNaN, 1, 1, kInfinity, 1, 1, 1, 2, -kInfinity, 2, -kInfinity});
    ASSERT_EQ(run(BP_OP_SOFTMAX, bp_softmax_args{.x = &x, .y = &y, .axis = 1}), BP_OK);
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(y.at<float>(i), 0.25f);
    for (int64_t i = 4; i < 12; ++i) EXPECT_TRUE(std::isnan(y.at<float>(i)));
    for (int64_t i = 12; i < 16; ++i) EXPECT_EQ(y.at<float>(i), i % 2 == 0 ? 0.5f : 0.0f);
    ASSERT_EQ(run(BP_OP_LOG_SOFTMAX, bp_log_softmax_args{.x = &x, .y = &y, .axis = 1}), BP_OK);
    for (int64_t i = 4; i < 12; ++i) EXPECT_TRUE(std::isnan(y.at<float>(i)));
    EXPECT_NEAR(y.at<float>(12), -std::log(2.0f), 1e-6f);
    EXPECT_EQ(y.at<float>(13), -kInfinity);
  }
}

TEST_F(LibraryTest, MaxPoolChoosesTheFirstNanAndMarksWindowsOfPadding) {
  const int64_t kernel[] = {2}, padding[] = {2, 0}, one[] = {1}, input[] = {4};
  TestTensor x(backend_, BP_F32, {1, 1, 4}), y(backend_, BP_F32, {1, 1, 5}),
      indices(backend_, BP_I64, {1, 1, 5}), grad_x(backend_, BP_F32, {1, 1, 4});
  x.set<float>({5, kNaN, kNaN, -kInfinity});
  ASSERT_EQ(run(BP_OP_MAX_POOL, bp_max_pool_args{.x = &x,
                                                 .y = &y,
                                                 .indices = &indices,
                                                 .kernel_size_count = 1,
                                                 .kernel_size = kernel,
                                                 .stride_count = 1,
                                                 .stride = one,
                                                 .padding_count = 2,
                                                 .padding = padding,
                                                 .dilation_count = 1,
                                                 .dilation = one}),
            BP_OK);
  EXPECT_EQ(indices.get<int64_t>(), (std::vector<int64_t>{-1, 0, 1, 1, 2}));
  EXPECT_EQ(y.at<float>(0), -kInfinity);
  EXPECT_EQ(y.at<float>(1), 5);
  EXPECT_TRUE(std::isnan(y.at<float>(2)));

  TestTensor grad_y(backend_, BP_F32, {1, 1, 5});
  grad_y.set<float>({1, 2, 3, 4, 5});
  const bp_max_pool_backward_args args{.grad_y = &grad_y,
                                       .indices = &indices,
                                       .grad_x = &grad_x,
                                       .input_size_count = 1,
                                       .input_size = input};
  ASSERT_EQ(run(BP_OP_MAX_POOL_BACKWARD, args), BP_OK);
  EXPECT_EQ(grad_x.get<float>(), (std::vector<float>{2, 7, 5, 0}));
  indices.at<int64_t>(3) = 4;
  EXPECT_EQ(run(BP_OP_MAX_POOL_BACKWARD, args), BP_DATA_FAILURE);
  EXPECT_EQ(backend_.text,
            "max_pool_backward: element 3 of indices is 4, not from 0 to 3 and not -1");
}

TEST_F(LibraryTest, CrossEntropyAveragesOverTheRowsThatCount) {
  TestTensor x(backend_, BP_F32, {3, 2}), target(backend_, BP_I64, {3}), y(backend_, BP_F32, {}),
      lse(backend_, BP_F32, {3}), grad_y(backend_, BP_F32, {}), grad_x(backend_, BP_F32, {3, 2});
  x.set<float>({0, 0, 7, 7, 1, 1});
  target.set<int64_t>({1, -100, 0});
  grad_y.set<float>({1});
  ASSERT_EQ(
      run(BP_OP_CROSS_ENTROPY, bp_cross_entropy_args{.x = &x,
                                                     .target = &target,
                                                     .y = &y,
                                                     .lse = &lse,
                                                     .ignore_index = -100,
                                                     .reduction = BP_CROSS_ENTROPY_REDUCTION_MEAN}),
      BP_OK);
  EXPECT_NEAR(y.at<float>(0), std::log(2.0f), 1e-6f);
  const bp_cross_entropy_backward_args backward{
      .grad_y = &grad_y,
      .x = &x,
      .target = &target,
      .lse = &lse,
      .grad_x = &grad_x,
      .ignore_index = -100,
      .reduction = BP_CROSS_ENTROPY_BACKWARD_REDUCTION_MEAN};
  ASSERT_EQ(run(BP_OP_CROSS_ENTROPY_BACKWARD, backward), BP_OK);
  const float expected[] = {0.25f, -0.25f, 0, 0, -0.25f, 0.25f};
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(grad_x.at<float>(i), expected[i], 1e-6f);
  target.at<int64_t>(1) = 2;
  EXPECT_EQ(run(BP_OP_CROSS_ENTROPY_BACKWARD, backward), BP_DATA_FAILURE);
  EXPECT_EQ(backend_.text,
            "cross_entropy_backward: element 1 of target is 2, not from 0 to 1 and not "
            "ignore_index");
}

TEST_F(LibraryTest, AnIndexThatNamesNoRowFailsTheStreamUntilCleared) {
  TestTensor weight(backend_, BP_I16, {3, 2}), indices(backend_, BP_I32, {2}),
      y(backend_, BP_I16, {2, 2});
  weight.set<int16_t>({1, 2, 3, 4, 5, 6});
  indices.set<int32_t>({2, 3});
  const bp_embedding_args args{.weight = &weight, .indices = &indices, .y = &y};
  EXPECT_EQ(run(BP_OP_EMBEDDING, args), BP_DATA_FAILURE);
  EXPECT_EQ(backend_.text, "embedding: element 1 of indices is 3, not from 0 to 2");
  backend_.streams->clear_failure(backend_.streams->self, backend_.default_stream());
  indices.at<int32_t>(1) = 0;
  EXPECT_EQ(run(BP_OP_EMBEDDING, args), BP_OK);
  EXPECT_EQ(y.get<int16_t>(), (std::vector<int16_t>{5, 6, 1, 2}));
}

TEST_F(LibraryTest, TheGradientOfEmbeddingAddsRowsAndClearsTheOthers) {
  TestTensor grad_y(backend_, BP_F64, {3, 2}), indices(backend_, BP_I64, {3}),
      grad_weight(backend_, BP_F64, {3, 2}, 2);
  grad_y.set<double>({1, 2, 3, 4, 5, 6});
  indices.set<int64_t>({2, 0, 2});
  ASSERT_EQ(run(BP_OP_EMBEDDING_BACKWARD, bp_embedding_backward_args{.grad_y = &grad_y,
                                                                     .indices = &indices,
                                                                     .grad_weight = &grad_weight,
                                                                     .num_embeddings = 3}),
            BP_OK);
  EXPECT_EQ(grad_weight.get<double>(), (std::vector<double>{3, 4, 0, 0, 6, 8}));
}

}  // namespace
}  // namespace bp
