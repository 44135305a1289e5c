// Tests layer_norm and rms_norm and their gradients against plain loops in f64: every dtype,
// layouts, absent operands, extents that are not whole vectors, and equal bits for any number of
// threads.
#include <cmath>
#include <memory>
#include <random>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Compute;
using kernels::Float16;

constexpr double kEps = 1e-3;

template <typename T>
constexpr bp_dtype kDtypeOf = BP_F32;
template <>
constexpr bp_dtype kDtypeOf<double> = BP_F64;
template <>
constexpr bp_dtype kDtypeOf<Float16> = BP_F16;
template <>
constexpr bp_dtype kDtypeOf<BFloat16> = BP_BF16;

template <typename T>
class Norms : public testing::Test {
 protected:
  using Sum = Compute<T>;
  static constexpr bp_dtype kDtype = kDtypeOf<T>, kSumDtype = sizeof(Sum) == 8 ? BP_F64 : BP_F32;
  // The error of one rounding of the result, or of f32 sums.
  static constexpr double kTolerance = sizeof(T) == 8     ? 1e-13
                                       : sizeof(T) == 4   ? 1e-5
                                       : kDtype == BP_F16 ? 2e-3
                                                          : 1.6e-2;

  void fill(TestTensor& t) {
    std::normal_distribution<float> values(0.5, 1);
    for (int64_t i = 0; i < t.size(); ++i) t.at<T>(i) = kernels::narrow<T>(values(random));
  }
  static double value(TestTensor& t, int64_t i) {
    return static_cast<double>(kernels::widen(t.at<T>(i)));
  }
  static double sum_value(TestTensor& t, int64_t i) { return static_cast<double>(t.at<Sum>(i)); }

  void expect_near(TestTensor& t, int64_t i, double expected, const char* what) {
    ASSERT_NEAR(value(t, i), expected, kTolerance * std::max(1.0, std::abs(expected)))
        << what << " at " << i;
  }

  struct Row {
    double mean = 0, rstd = 0;
  };
  Row statistics(TestTensor& x, int64_t row, int64_t cols, bool is_centered) {
    Row r;
    for (int64_t i = 0; i < cols && is_centered; ++i) {
      r.mean += value(x, row * cols + i) / static_cast<double>(cols);
    }
    double squares = 0;
    for (int64_t i = 0; i < cols; ++i) squares += std::pow(value(x, row * cols + i) - r.mean, 2);
    r.rstd = 1 / std::sqrt(squares / static_cast<double>(cols) + kEps);
    return r;
  }

  // Checks the op and its gradient, with gamma. beta is NULL for rms_norm, and so are its
  // gradients.
  void check(TestTensor& x, TestTensor& y, TestTensor& gamma, TestTensor* beta, int32_t axes) {
    const int64_t cols = gamma.size(), rows = x.size() / cols;
    const std::vector<int64_t> outer(x.shape().begin(), x.shape().end() - axes);
    TestTensor mean(b, kSumDtype, outer, 2), rstd(b, kSumDtype, outer),
        grad_y(b, kDtype, x.shape()), grad_gamma(b, kDtype, gamma.shape()),
        grad_beta(b, kDtype, gamma.shape(), 2);
    fill(x);
    fill(grad_y);
    fill(gamma);
    if (beta != nullptr) {
      fill(*beta);
      ASSERT_EQ(b.launch(BP_OP_LAYER_NORM, bp_layer_norm_args{.x = &x,
                                                              .gamma = &gamma,
                                                              .beta = &*beta,
                                                              .y = &y,
                                                              .mean = &mean,
                                                              .rstd = &rstd,
                                                              .normalized_ndim = axes,
                                                              .eps = kEps}),
                BP_OK)
          << b.text;
    } else {
      ASSERT_EQ(b.launch(BP_OP_RMS_NORM, bp_rms_norm_args{.x = &x,
                                                          .gamma = &gamma,
                                                          .y = &y,
                                                          .rstd = &rstd,
                                                          .normalized_ndim = axes,
                                                          .eps = kEps}),
                BP_OK)
          << b.text;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const Row r = statistics(x, row, cols, beta != nullptr);
      ASSERT_NEAR(beta == nullptr ? 0 : sum_value(mean, row), r.mean, 1e-5);
      ASSERT_NEAR(sum_value(rstd, row) / r.rstd, 1, 1e-5);
      for (int64_t i = 0; i < cols; ++i) {
        const double shift = beta == nullptr ? 0 : value(*beta, i);
        const double u = (value(x, row * cols + i) - r.mean) * r.rstd;
        expect_near(y, row * cols + i, u * value(gamma, i) + shift, "y");
      }
    }
    // y is not needed any more and has the right layout, so it receives grad_x.
    if (beta != nullptr) {
      ASSERT_EQ(
          b.launch(BP_OP_LAYER_NORM_BACKWARD, bp_layer_norm_backward_args{.grad_y = &grad_y,
                                                                          .x = &x,
                                                                          .gamma = &gamma,
                                                                          .mean = &mean,
                                                                          .rstd = &rstd,
                                                                          .grad_x = &y,
                                                                          .grad_gamma = &grad_gamma,
                                                                          .grad_beta = &grad_beta,
                                                                          .normalized_ndim = axes}),
          BP_OK)
          << b.text;
    } else {
      ASSERT_EQ(
          b.launch(BP_OP_RMS_NORM_BACKWARD, bp_rms_norm_backward_args{.grad_y = &grad_y,
                                                                      .x = &x,
                                                                      .gamma = &gamma,
                                                                      .rstd = &rstd,
                                                                      .grad_x = &y,
                                                                      .grad_gamma = &grad_gamma,
                                                                      .normalized_ndim = axes}),
          BP_OK)
          << b.text;
    }
    check_gradients(x, grad_y, gamma, y, grad_gamma,
                    beta == nullptr ? nullptr : std::addressof(grad_beta));
  }

  void check_gradients(TestTensor& x, TestTensor& grad_y, TestTensor& gamma, TestTensor& grad_x,
                       TestTensor& grad_gamma, TestTensor* grad_beta) {
    const int64_t cols = gamma.size(), rows = x.size() / cols;
    const auto n = static_cast<double>(cols);
    std::vector<double> gammas(static_cast<size_t>(cols)), betas(gammas);
    for (int64_t row = 0; row < rows; ++row) {
      const Row r = statistics(x, row, cols, grad_beta != nullptr);
      const auto u = [&](int64_t i) { return (value(x, row * cols + i) - r.mean) * r.rstd; };
      const auto h = [&](int64_t i) { return value(grad_y, row * cols + i) * value(gamma, i); };
      double mean_h = 0, mean_hu = 0;
      for (int64_t i = 0; i < cols; ++i) {
        if (grad_beta != nullptr) mean_h += h(i) / n;
        mean_hu += h(i) * u(i) / n;
        gammas[static_cast<size_t>(i)] += value(grad_y, row * cols + i) * u(i);
        betas[static_cast<size_t>(i)] += value(grad_y, row * cols + i);
      }
      for (int64_t i = 0; i < cols; ++i) {
        const double expected = r.rstd * (h(i) - mean_h - u(i) * mean_hu);
        ASSERT_NEAR(value(grad_x, row * cols + i), expected,
                    4 * kTolerance * std::max(r.rstd, std::abs(expected)))
            << "grad_x at " << i;
      }
    }
    for (int64_t i = 0; i < cols; ++i) {
      expect_near(grad_gamma, i, gammas[static_cast<size_t>(i)], "grad_gamma");
      if (grad_beta != nullptr) expect_near(*grad_beta, i, betas[static_cast<size_t>(i)], "beta");
    }
  }

  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  std::mt19937 random{20240501};
};

using Elements = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(Norms, Elements);

TYPED_TEST(Norms, TakeRowsOfEveryLength) {
  const bp_dtype dtype = TestFixture::kDtype;
  for (const int64_t cols : {1, 2, 7, 16, 33, 257}) {
    TestTensor x(this->b, dtype, {40, cols}), y(this->b, dtype, {40, cols}),
        gamma(this->b, dtype, {cols}), beta(this->b, dtype, {cols});
    this->check(x, y, gamma, std::addressof(beta), 1);
    this->check(x, y, gamma, nullptr, 1);
  }
}

TYPED_TEST(Norms, TakeEveryLayoutAndSeveralAxes) {
  const bp_dtype dtype = TestFixture::kDtype;
  TestTensor x(this->b, dtype, {5, 3, 4, 7}), y(this->b, dtype, {3, 5, 4, 7}, 2),
      gamma(this->b, dtype, {7, 4}), beta(this->b, dtype, {4, 7}, 3);
  y.permute({1, 0, 2, 3});
  gamma.permute({1, 0});
  this->check(x, y, gamma, std::addressof(beta), 2);
  this->check(x, y, gamma, nullptr, 2);
}

TYPED_TEST(Norms, TakeRowsOfRunsOfNeighbours) {
  const bp_dtype dtype = TestFixture::kDtype;
  TestTensor x(this->b, dtype, {3, 4, 70}), y(this->b, dtype, {3, 4, 70}),
      gamma(this->b, dtype, {3, 70}), beta(this->b, dtype, {3, 70});
  for (TestTensor* t : {std::addressof(x), std::addressof(y)}) t->permute({1, 0, 2});
  this->check(x, y, gamma, std::addressof(beta), 2);
  this->check(x, y, gamma, nullptr, 2);
  // The runs of x have 256 elements. Those of grad_x, which has the place of y, are not even.
  TestTensor long_x(this->b, dtype, {3, 2, 4, 64}), uneven(this->b, dtype, {2, 4, 3, 64}),
      long_gamma(this->b, dtype, {3, 4, 64}), long_beta(this->b, dtype, {3, 4, 64});
  long_x.permute({1, 0, 2, 3});
  uneven.permute({0, 2, 1, 3});
  this->check(long_x, uneven, long_gamma, std::addressof(long_beta), 3);
}

TEST(NormsOfF32, WorkWithoutTheirOptionalOperandsAndInPlace) {
  TestBackend b{BACKEND_PATH, {{"threads", "2"}}};
  TestTensor x(b, BP_F32, {2, 3}), y(b, BP_F32, {2, 3});
  const std::vector<float> values{1, 2, 3, -4, 0, 4};
  x.set(values);
  const bp_layer_norm_args args{.x = &x, .y = &y, .normalized_ndim = 1};
  ASSERT_EQ(b.launch(BP_OP_LAYER_NORM, args), BP_OK) << b.text;
  EXPECT_FLOAT_EQ(y.at<float>(0), -std::sqrt(1.5f));
  EXPECT_EQ(y.at<float>(1), 0);
  EXPECT_FLOAT_EQ(y.at<float>(5), std::sqrt(1.5f));
  ASSERT_EQ(b.launch(BP_OP_LAYER_NORM, bp_layer_norm_args{.x = &x, .y = &x, .normalized_ndim = 1}),
            BP_OK);
  EXPECT_EQ(x.get<float>(), y.get<float>());
  x.set(values);
  ASSERT_EQ(b.launch(BP_OP_RMS_NORM, bp_rms_norm_args{.x = &x, .y = &x, .normalized_ndim = 2}),
            BP_OK);
  EXPECT_FLOAT_EQ(x.at<float>(2), 3 / std::sqrt(46.0f / 6));
}

TEST(NormsOfF32, GiveEqualBitsForEveryNumberOfThreads) {
  const int64_t rows = 1500, cols = 67;
  std::vector<std::vector<float>> results;
  for (const char* threads : {"1", "2", "5"}) {
    TestBackend b{BACKEND_PATH, {{"threads", threads}}};
    TestTensor x(b, BP_F32, {rows, cols}), grad_y(b, BP_F32, {rows, cols}),
        grad_x(b, BP_F32, {rows, cols}), mean(b, BP_F32, {rows}), rstd(b, BP_F32, {rows}),
        grad_gamma(b, BP_F32, {cols}), grad_beta(b, BP_F32, {cols});
    std::mt19937 random{7};
    std::normal_distribution<float> values;
    for (TestTensor* t : {std::addressof(x), std::addressof(grad_y)}) {
      for (int64_t i = 0; i < t->size(); ++i) t->at<float>(i) = values(random);
    }
    ASSERT_EQ(b.launch(BP_OP_LAYER_NORM, bp_layer_norm_args{.x = &x,
                                                            .y = &grad_x,
                                                            .mean = &mean,
                                                            .rstd = &rstd,
                                                            .normalized_ndim = 1,
                                                            .eps = kEps}),
              BP_OK);
    ASSERT_EQ(
        b.launch(BP_OP_LAYER_NORM_BACKWARD, bp_layer_norm_backward_args{.grad_y = &grad_y,
                                                                        .x = &x,
                                                                        .mean = &mean,
                                                                        .rstd = &rstd,
                                                                        .grad_x = &grad_x,
                                                                        .grad_gamma = &grad_gamma,
                                                                        .grad_beta = &grad_beta,
                                                                        .normalized_ndim = 1}),
        BP_OK);
    std::vector<float> bits = grad_x.get<float>();
    for (const float g : grad_gamma.get<float>()) bits.push_back(g);
    for (const float g : grad_beta.get<float>()) bits.push_back(g);
    results.push_back(bits);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace bp
