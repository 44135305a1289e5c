// Tests that the error of a sum of n terms in f32 grows at most like the square root of n, in every
// kernel that sums. BACKEND_PATH names the plugin; backends with kernels of their own build this
// test.
#include <algorithm>
#include <cmath>

#include "backends/shell/numerics_test.hpp"

namespace bp {
namespace {

constexpr double kUnit = 0x1p-24;  // Half an ulp of 1 in f32.

// Expects an error that grows at most like the square root of n.
void expect_sum(double got, double wanted, int64_t n, const char* what) {
  const double error = std::fabs(got / wanted - 1);
  EXPECT_LE(error, 8 * std::sqrt(static_cast<double>(n)) * kUnit)
      << what << " of " << n << " terms: " << got << ", not " << wanted;
}

// A plain loop over terms like this one drifts, because each addition rounds in the same direction.
constexpr float kTerm = 0.1f;
constexpr int64_t kMany = int64_t{1} << 17;

class LongSums : public Numerics {
 protected:
  std::vector<float> terms(int64_t n) { return std::vector<float>(static_cast<size_t>(n), kTerm); }
  static double sum_of(int64_t n) { return static_cast<double>(n) * double{kTerm}; }
};

TEST_F(LongSums, OfRowsThatOneIndexNames) {
  TestTensor grad_y(b, BP_F32, {kMany, 1}), indices(b, BP_I64, {kMany}), to(b, BP_F32, {1, 1});
  put(grad_y, terms(kMany));
  put(indices, std::vector<int64_t>(kMany));
  run(BP_OP_EMBEDDING_BACKWARD,
      bp_embedding_backward_args{
          .grad_y = &grad_y, .indices = &indices, .grad_weight = &to, .num_embeddings = 1});
  expect_sum(get<float>(to)[0], sum_of(kMany), kMany, "embedding_backward");
}

TEST_F(LongSums, OfElementsThatOneIndexNames) {
  for (const bp_dtype dtype : {BP_F32, BP_F16}) {
    TestTensor src(b, dtype, {kMany}), indices(b, BP_I64, {kMany});
    TestTensor x(b, dtype, {1}), y(b, dtype, {1});
    const uint16_t half = 0x0666;  // 2^-14 * 1.599609375: The sum is far below the largest f16.
    if (dtype == BP_F32) {
      put(src, terms(kMany));
      put(x, std::vector<float>{0});
    } else {
      put(src, std::vector<uint16_t>(kMany, half));
      put(x, std::vector<uint16_t>{0});
    }
    put(indices, std::vector<int64_t>(kMany));
    run(BP_OP_SCATTER_REDUCE, bp_scatter_reduce_args{.x = &x,
                                                     .indices = &indices,
                                                     .src = &src,
                                                     .y = &y,
                                                     .axis = 0,
                                                     .reduction = BP_SCATTER_REDUCE_REDUCTION_SUM});
    if (dtype == BP_F32) {
      expect_sum(get<float>(y)[0], sum_of(kMany), kMany, "scatter_reduce");
    } else {  // The sum is 131072 * 1638 * 2^-24 = 12.796875, which is an f16.
      EXPECT_EQ(get<uint16_t>(y)[0], 0x4a66) << "scatter_reduce in f16";
    }
  }
}

TEST_F(LongSums, OfOutputsThatNameOneInput) {
  TestTensor grad_y(b, BP_F32, {1, 1, kMany}), indices(b, BP_I64, {1, 1, kMany});
  TestTensor grad_x(b, BP_F32, {1, 1, 3});
  put(grad_y, terms(kMany));
  put(indices, std::vector<int64_t>(kMany, 1));
  const int64_t size[] = {3};
  run(BP_OP_MAX_POOL_BACKWARD, bp_max_pool_backward_args{.grad_y = &grad_y,
                                                         .indices = &indices,
                                                         .grad_x = &grad_x,
                                                         .input_size_count = 1,
                                                         .input_size = size});
  const std::vector<float> sums = get<float>(grad_x);
  expect_sum(sums[1], sum_of(kMany), kMany, "max_pool_backward");
  EXPECT_EQ(sums[0], 0);
  EXPECT_EQ(sums[2], 0);
}

TEST_F(LongSums, OfWindows) {
  for (int64_t n = kMany;; n /= 2) {
    TestTensor x(b, BP_F32, {1, 1, n}), y(b, BP_F32, {1, 1, 1});
    const int64_t kernel[] = {n}, stride[] = {1}, padding[] = {0, 0};
    const bp_avg_pool_args args{.x = &x,
                                .y = &y,
                                .kernel_size_count = 1,
                                .kernel_size = kernel,
                                .stride_count = 1,
                                .stride = stride,
                                .padding_count = 2,
                                .padding = padding,
                                .counts_padding = 1};
    if (kernel_for(BP_OP_AVG_POOL, args) == nullptr) continue;
    put(x, terms(n));
    run(BP_OP_AVG_POOL, args);
    return expect_sum(get<float>(y)[0], double{kTerm}, n, "avg_pool");
  }
}

// The windows of all n outputs contain the one input in the middle.
TEST_F(LongSums, OfWindowsThatHoldOneInput) {
  for (int64_t n = 4096;; n /= 2) {
    TestTensor grad_y(b, BP_F32, {1, 1, n}), grad_x(b, BP_F32, {1, 1, 2 * n - 1});
    const int64_t size[] = {2 * n - 1}, kernel[] = {n}, stride[] = {1}, padding[] = {0, 0};
    const bp_avg_pool_backward_args args{.grad_y = &grad_y,
                                         .grad_x = &grad_x,
                                         .input_size_count = 1,
                                         .input_size = size,
                                         .kernel_size_count = 1,
                                         .kernel_size = kernel,
                                         .stride_count = 1,
                                         .stride = stride,
                                         .padding_count = 2,
                                         .padding = padding,
                                         .counts_padding = 1};
    if (kernel_for(BP_OP_AVG_POOL_BACKWARD, args) == nullptr) continue;
    put(grad_y, std::vector<float>(static_cast<size_t>(n), 0.3f));
    run(BP_OP_AVG_POOL_BACKWARD, args);
    const float gotten = get<float>(grad_x)[static_cast<size_t>(n - 1)];
    return expect_sum(gotten, double{0.3f}, n, "avg_pool_backward");
  }
}

TEST_F(LongSums, OfPlacesThatOneWeightSees) {
  TestTensor grad_y(b, BP_F32, {1, 1, kMany}), x(b, BP_F32, {1, 1, kMany});
  TestTensor to(b, BP_F32, {1, 1, 1});
  put(grad_y, terms(kMany));
  put(x, std::vector<float>(kMany, 1));
  const int64_t one[] = {1}, padding[] = {0, 0};
  run(BP_OP_CONVOLUTION_BACKWARD_WEIGHT, bp_convolution_backward_weight_args{.grad_y = &grad_y,
                                                                             .x = &x,
                                                                             .grad_weight = &to,
                                                                             .kernel_size_count = 1,
                                                                             .kernel_size = one,
                                                                             .stride_count = 1,
                                                                             .stride = one,
                                                                             .padding_count = 2,
                                                                             .padding = padding,
                                                                             .dilation_count = 1,
                                                                             .dilation = one,
                                                                             .groups = 1});
  expect_sum(get<float>(to)[0], sum_of(kMany), kMany, "convolution_backward_weight");
}

TEST_F(LongSums, OfPlacesThatOneBiasSees) {
  TestTensor grad_y(b, BP_F32, {1, 1, kMany}), to(b, BP_F32, {1});
  put(grad_y, terms(kMany));
  run(BP_OP_CONVOLUTION_BACKWARD_BIAS,
      bp_convolution_backward_bias_args{.grad_y = &grad_y, .grad_bias = &to});
  expect_sum(get<float>(to)[0], sum_of(kMany), kMany, "convolution_backward_bias");
}

// Each of a few rows and columns has a sum of `depth` products.
TEST_F(LongSums, OfProducts) {
  for (const int64_t depth : {int64_t{1} << 14, int64_t{1} << 18}) {
    TestTensor a(b, BP_F32, {2, depth}), c(b, BP_F32, {depth, 3}), y(b, BP_F32, {2, 3});
    put(a, terms(2 * depth));
    put(c, std::vector<float>(static_cast<size_t>(3 * depth), 1));
    run(BP_OP_MATMUL, bp_matmul_args{.a = &a, .b = &c, .y = &y});
    for (const float sum : get<float>(y)) expect_sum(sum, sum_of(depth), depth, "matmul");
  }
  const int64_t depth = int64_t{1} << 16;
  TestTensor x(b, BP_F32, {5, depth}), weight(b, BP_F32, {1, depth}), bias(b, BP_F32, {1});
  TestTensor y(b, BP_F32, {5, 1});
  put(x, terms(5 * depth));
  put(weight, std::vector<float>(static_cast<size_t>(depth), 1));
  put(bias, std::vector<float>{0});
  run(BP_OP_LINEAR, bp_linear_args{.x = &x,
                                   .weight = &weight,
                                   .bias = &bias,
                                   .y = &y,
                                   .activation = BP_LINEAR_ACTIVATION_NONE});
  for (const float sum : get<float>(y)) expect_sum(sum, sum_of(depth), depth, "linear");
}

// The first of n elements has the weight 1, and each other one exp(-2.3).
TEST_F(LongSums, OfExponentials) {
  for (const bool is_column : {false, true}) {
    const int64_t lines = is_column ? 33 : 1;
    const std::vector<int64_t> shape =
        is_column ? std::vector<int64_t>{kMany, lines} : std::vector<int64_t>{lines, kMany};
    TestTensor x(b, BP_F32, shape), y(b, BP_F32, shape);
    std::vector<float> values(static_cast<size_t>(kMany * lines), -2.3f);
    std::fill_n(values.begin(), lines, 0.0f);
    put(x, values);
    const double sum = 1 + static_cast<double>(kMany - 1) * std::exp(double{-2.3f});
    const int32_t axis = is_column ? 0 : 1;
    run(BP_OP_SOFTMAX, bp_softmax_args{.x = &x, .y = &y, .axis = axis});
    for (int64_t i = 0; i < lines; ++i) {
      expect_sum(get<float>(y)[static_cast<size_t>(i)], 1 / sum, kMany, "softmax");
    }
    run(BP_OP_LOG_SOFTMAX, bp_log_softmax_args{.x = &x, .y = &y, .axis = axis});
    expect_sum(std::exp(-double{get<float>(y)[0]}), sum, kMany, "log_softmax");
  }
}

TEST_F(LongSums, OfGradientsOfARow) {
  TestTensor grad_y(b, BP_F32, {kMany, 2}), y(b, BP_F32, {kMany, 2}), grad_x(b, BP_F32, {kMany, 2});
  put(grad_y, terms(2 * kMany));
  put(y, std::vector<float>(static_cast<size_t>(2 * kMany), 0));
  run(BP_OP_LOG_SOFTMAX_BACKWARD,
      bp_log_softmax_backward_args{.grad_y = &grad_y, .y = &y, .grad_x = &grad_x, .axis = 0});
  expect_sum(get<float>(grad_x)[0], double{kTerm} - sum_of(kMany), kMany, "log_softmax_backward");
  put(y, std::vector<float>(static_cast<size_t>(2 * kMany), 1));
  run(BP_OP_SOFTMAX_BACKWARD,
      bp_softmax_backward_args{.grad_y = &grad_y, .y = &y, .grad_x = &grad_x, .axis = 0});
  expect_sum(get<float>(grad_x)[0], double{kTerm} - sum_of(kMany), kMany, "softmax_backward");
}

TEST_F(LongSums, OfClasses) {
  TestTensor x(b, BP_F32, {1, kMany}), target(b, BP_I64, {1}), y(b, BP_F32, {1});
  TestTensor lse(b, BP_F32, {1});
  std::vector<float> values(kMany, -2.3f);
  values[0] = 0;
  put(x, values);
  put(target, std::vector<int64_t>{0});
  run(BP_OP_CROSS_ENTROPY, bp_cross_entropy_args{.x = &x,
                                                 .target = &target,
                                                 .y = &y,
                                                 .lse = &lse,
                                                 .ignore_index = -1,
                                                 .reduction = BP_CROSS_ENTROPY_REDUCTION_NONE});
  const double sum = 1 + static_cast<double>(kMany - 1) * std::exp(double{-2.3f});
  expect_sum(std::exp(double{get<float>(y)[0]}), sum, kMany, "cross_entropy");
  expect_sum(std::exp(double{get<float>(lse)[0]}), sum, kMany, "cross_entropy: lse");
}

TEST_F(LongSums, OfRowsThatAreNormalized) {
  TestTensor grad_y(b, BP_F32, {kMany, 3}), x(b, BP_F32, {kMany, 3}), grad_x(b, BP_F32, {kMany, 3});
  TestTensor mean(b, BP_F32, {kMany}), rstd(b, BP_F32, {kMany}), gamma(b, BP_F32, {3});
  TestTensor grad_gamma(b, BP_F32, {3}), grad_beta(b, BP_F32, {3});
  put(grad_y, terms(3 * kMany));
  put(x, std::vector<float>(static_cast<size_t>(3 * kMany), 1));
  put(mean, std::vector<float>(kMany, 0));
  put(rstd, std::vector<float>(kMany, 1));
  put(gamma, std::vector<float>(3, 1));
  run(BP_OP_LAYER_NORM_BACKWARD, bp_layer_norm_backward_args{.grad_y = &grad_y,
                                                             .x = &x,
                                                             .gamma = &gamma,
                                                             .mean = &mean,
                                                             .rstd = &rstd,
                                                             .grad_x = &grad_x,
                                                             .grad_gamma = &grad_gamma,
                                                             .grad_beta = &grad_beta,
                                                             .normalized_ndim = 1,
                                                             .eps = 1e-5});
  for (const float sum : get<float>(grad_gamma))
    expect_sum(sum, sum_of(kMany), kMany, "grad_gamma");
  for (const float sum : get<float>(grad_beta)) expect_sum(sum, sum_of(kMany), kMany, "grad_beta");
}

TEST_F(LongSums, OfALongRowThatIsNormalized) {
  TestTensor x(b, BP_F32, {1, kMany}), y(b, BP_F32, {1, kMany});
  TestTensor mean(b, BP_F32, {1}), rstd(b, BP_F32, {1});
  std::vector<float> values(kMany, kTerm);
  values[0] = 0;  // The variance must not be 0.
  put(x, values);
  run(BP_OP_LAYER_NORM,
      bp_layer_norm_args{
          .x = &x, .y = &y, .mean = &mean, .rstd = &rstd, .normalized_ndim = 1, .eps = 1});
  const double wanted = sum_of(kMany - 1) / static_cast<double>(kMany);
  expect_sum(get<float>(mean)[0], wanted, kMany, "layer_norm");
}

// Uses as many keys as the kernel takes, all with the same weight.
TEST_F(LongSums, OfKeys) {
  for (int64_t n = kMany;; n /= 2) {
    TestTensor q(b, BP_F32, {1, 1, 1, 1}), k(b, BP_F32, {1, 1, n, 1}), v(b, BP_F32, {1, 1, n, 1});
    TestTensor y(b, BP_F32, {1, 1, 1, 1}), lse(b, BP_F32, {1, 1, 1});
    const bp_sdpa_args args{.q = &q, .k = &k, .v = &v, .y = &y, .lse = &lse, .scale = 1};
    if (kernel_for(BP_OP_SDPA, args) == nullptr) continue;
    put(q, std::vector<float>{0});
    put(k, std::vector<float>(static_cast<size_t>(n), 1));
    put(v, terms(n));
    run(BP_OP_SDPA, args);
    expect_sum(get<float>(y)[0], double{kTerm}, n, "sdpa");

    // grad_q is the sum of (grad_y * v - delta) * k / n over the keys.
    TestTensor grad_y(b, BP_F32, {1, 1, 1, 1}), grad_q(b, BP_F32, {1, 1, 1, 1});
    const bp_sdpa_backward_args backward{.grad_y = &grad_y,
                                         .q = &q,
                                         .k = &k,
                                         .v = &v,
                                         .y = &y,
                                         .lse = &lse,
                                         .grad_q = &grad_q,
                                         .scale = 1};
    if (kernel_for(BP_OP_SDPA_BACKWARD, backward) == nullptr) continue;
    put(grad_y, std::vector<float>{1});
    put(y, std::vector<float>{0});  // Without a delta, grad_q is the mean of v.
    run(BP_OP_SDPA_BACKWARD, backward);
    return expect_sum(get<float>(grad_q)[0], double{kTerm}, n, "sdpa_backward: grad_q");
  }
}

// Uses as many queries as the kernel takes. Each adds its grad_y to the gradient of the one key.
TEST_F(LongSums, OfQueries) {
  for (int64_t n = kMany;; n /= 2) {
    const std::vector<int64_t> many = {1, 1, n, 1}, one = {1, 1, 1, 1};
    TestTensor grad_y(b, BP_F32, many), q(b, BP_F32, many), y(b, BP_F32, many);
    TestTensor k(b, BP_F32, one), v(b, BP_F32, one), lse(b, BP_F32, {1, 1, n});
    TestTensor grad_q(b, BP_F32, many), grad_k(b, BP_F32, one), grad_v(b, BP_F32, one);
    const bp_sdpa_backward_args args{.grad_y = &grad_y,
                                     .q = &q,
                                     .k = &k,
                                     .v = &v,
                                     .y = &y,
                                     .lse = &lse,
                                     .grad_q = &grad_q,
                                     .grad_k = &grad_k,
                                     .grad_v = &grad_v,
                                     .scale = 1};
    if (kernel_for(BP_OP_SDPA_BACKWARD, args) == nullptr) continue;
    put(grad_y, terms(n));
    put(q, std::vector<float>(static_cast<size_t>(n), 1));
    put(y, std::vector<float>(static_cast<size_t>(n), 0));
    put(k, std::vector<float>{0});
    put(v, std::vector<float>{1});
    put(lse, std::vector<float>(static_cast<size_t>(n), 0));
    run(BP_OP_SDPA_BACKWARD, args);
    expect_sum(get<float>(grad_v)[0], sum_of(n), n, "sdpa_backward: grad_v");
    return expect_sum(get<float>(grad_k)[0], sum_of(n), n, "sdpa_backward: grad_k");
  }
}

}  // namespace
}  // namespace bp
