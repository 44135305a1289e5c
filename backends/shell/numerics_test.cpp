// Tests signed zeros, hidden keys, the tails of functions, empty axes, and functions of f64, on the
// kernels of one plugin. BACKEND_PATH names the plugin; backends with kernels of their own build
// this test.
#include "backends/shell/numerics_test.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bp {
namespace {

// ---- Zeros --------------------------------------------------------------------------------------

TEST_F(Numerics, ASumOverNoAxesIsItsOperand) {
  TestTensor x(b, BP_F32, {2}), y(b, BP_F32, {2}), half(b, BP_F16, {2});
  const std::vector<float> values = {-0.0f, 1.5f};
  put(x, values);
  const auto expect_same = [&](const char* what) {
    const std::vector<float> result = get<float>(y);
    EXPECT_TRUE(result[0] == 0 && std::signbit(result[0])) << what << ": " << result[0];
    EXPECT_EQ(result[1], 1.5f) << what;
  };
  run(BP_OP_SUM, bp_sum_args{.x = &x, .y = &y});
  expect_same("sum");
  run(BP_OP_MEAN, bp_mean_args{.x = &x, .y = &y});
  expect_same("mean");
  run(BP_OP_AMAX, bp_amax_args{.x = &x, .y = &y});
  expect_same("amax");
  put(half, std::vector<uint16_t>{0x8000, 0x3e00});
  run(BP_OP_SUM, bp_sum_args{.x = &half, .y = &y});
  expect_same("sum of f16 in f32");
  TestTensor flags(b, BP_BOOL, {2}), counts(b, BP_I64, {2});
  put(flags, std::vector<uint8_t>{0, 1});
  run(BP_OP_SUM, bp_sum_args{.x = &flags, .y = &counts});
  EXPECT_EQ(get<int64_t>(counts), (std::vector<int64_t>{0, 1}));
}

TEST_F(Numerics, ASumOverAnEmptyAxisIsZeroWithoutASign) {
  TestTensor x(b, BP_F32, {3, 0}), y(b, BP_F32, {3});
  put(y, std::vector<float>{7, 7, 7});
  const int64_t axes[] = {1};
  run(BP_OP_SUM, bp_sum_args{.x = &x, .y = &y, .axes_count = 1, .axes = axes});
  for (const float sum : get<float>(y)) EXPECT_TRUE(sum == 0 && !std::signbit(sum)) << sum;
}

TEST_F(Numerics, TheFirstOfEqualZerosIsTheLargest) {
  const int64_t kernel[] = {2}, one[] = {1}, two[] = {2}, padding[] = {0, 0};
  TestTensor x(b, BP_F32, {1, 1, 4}), y(b, BP_F32, {1, 1, 2}), indices(b, BP_I64, {1, 1, 2});
  put(x, std::vector<float>{-0.0f, 0.0f, 0.0f, -0.0f});
  for (const bool has_indices : {false, true}) {
    run(BP_OP_MAX_POOL, bp_max_pool_args{.x = &x,
                                         .y = &y,
                                         .indices = has_indices ? &indices : nullptr,
                                         .kernel_size_count = 1,
                                         .kernel_size = kernel,
                                         .stride_count = 1,
                                         .stride = two,
                                         .padding_count = 2,
                                         .padding = padding,
                                         .dilation_count = 1,
                                         .dilation = one});
    const std::vector<float> result = get<float>(y);
    EXPECT_TRUE(std::signbit(result[0])) << "with indices: " << has_indices;
    EXPECT_FALSE(std::signbit(result[1])) << "with indices: " << has_indices;
  }
  EXPECT_EQ(get<int64_t>(indices), (std::vector<int64_t>{0, 2}));
  TestTensor row(b, BP_F32, {4}), place(b, BP_I64, {1});
  put(row, std::vector<float>{-1, -0.0f, 0.0f, -0.0f});
  run(BP_OP_ARGMAX, bp_argmax_args{.x = &row, .y = &place, .axis = 0, .keepdims = 1});
  EXPECT_EQ(get<int64_t>(place)[0], 1);
  TestTensor largest(b, BP_F32, {3}), places(b, BP_I64, {3});
  run(BP_OP_TOPK,
      bp_topk_args{
          .x = &row, .y = &largest, .indices = &places, .k = 3, .axis = 0, .is_largest = 1});
  EXPECT_EQ(get<int64_t>(places), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(std::signbit(get<float>(largest)[0]));
}

TEST_F(Numerics, AnEmptyAxisHasAnEmptySoftmax) {
  TestTensor x(b, BP_F32, {3, 0}), y(b, BP_F32, {3, 0});
  for (const int32_t axis : {0, 1}) {
    run(BP_OP_SOFTMAX, bp_softmax_args{.x = &x, .y = &y, .axis = axis});
    run(BP_OP_LOG_SOFTMAX, bp_log_softmax_args{.x = &x, .y = &y, .axis = axis});
  }
}

// ---- Attention ----------------------------------------------------------------------------------

// Two queries and three keys. The first query sees keys whose bias is -inf, or none.
class HiddenKeys : public Numerics {
 protected:
  void fill(float last_value) {
    put(q, std::vector<float>(8, 1));
    put(k, std::vector<float>(12, 1));
    put(v, std::vector<float>{1, 2, 3, 4, 5, last_value});
    put(grad_y, std::vector<float>{1, 2, 3, 4});
    put(bias, std::vector<float>{-kInfinity, -kInfinity, -kInfinity, 0, 0, -kInfinity});
    put(mask, std::vector<uint8_t>{0, 0, 0, 1, 1, 0});
  }
  struct Results {
    std::vector<float> y, lse, grad_q, grad_k, grad_v;
  };
  Results results(bool has_bias) {
    const bp_tensor* const its_bias = has_bias ? &bias : nullptr;
    const bp_tensor* const its_mask = has_bias ? nullptr : &mask;
    run(BP_OP_SDPA, bp_sdpa_args{.q = &q,
                                 .k = &k,
                                 .v = &v,
                                 .mask = its_mask,
                                 .bias = its_bias,
                                 .y = &y,
                                 .lse = &lse,
                                 .scale = 0.5});
    run(BP_OP_SDPA_BACKWARD, bp_sdpa_backward_args{.grad_y = &grad_y,
                                                   .q = &q,
                                                   .k = &k,
                                                   .v = &v,
                                                   .mask = its_mask,
                                                   .bias = its_bias,
                                                   .y = &y,
                                                   .lse = &lse,
                                                   .grad_q = &grad_q,
                                                   .grad_k = &grad_k,
                                                   .grad_v = &grad_v,
                                                   .scale = 0.5});
    return {get<float>(y), get<float>(lse), get<float>(grad_q), get<float>(grad_k),
            get<float>(grad_v)};
  }

  TestTensor q{b, BP_F32, {1, 1, 2, 4}}, k{b, BP_F32, {1, 1, 3, 4}}, v{b, BP_F32, {1, 1, 3, 2}};
  TestTensor bias{b, BP_F32, {1, 1, 2, 3}}, mask{b, BP_BOOL, {1, 1, 2, 3}};
  TestTensor y{b, BP_F32, {1, 1, 2, 2}}, lse{b, BP_F32, {1, 1, 2}}, grad_y{b, BP_F32, {1, 1, 2, 2}};
  TestTensor grad_q{b, BP_F32, {1, 1, 2, 4}}, grad_k{b, BP_F32, {1, 1, 3, 4}};
  TestTensor grad_v{b, BP_F32, {1, 1, 3, 2}};
};

TEST_F(HiddenKeys, ByBiasAreAsByMask) {
  fill(6);
  const Results by_bias = results(true), by_mask = results(false);
  EXPECT_EQ(by_bias.y, by_mask.y);
  EXPECT_EQ(by_bias.lse, by_mask.lse);
  EXPECT_EQ(by_bias.grad_q, by_mask.grad_q);
  EXPECT_EQ(by_bias.grad_k, by_mask.grad_k);
  EXPECT_EQ(by_bias.grad_v, by_mask.grad_v);
  EXPECT_EQ(by_bias.y, (std::vector<float>{0, 0, 2, 3}));
  EXPECT_EQ(by_bias.lse[0], -kInfinity);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(by_bias.grad_q[i], 0);
}

// The first query sees no key, so it does not read the infinite value.
TEST_F(HiddenKeys, ThatAreAllHaveNoValue) {
  fill(kInfinity);
  const Results by_bias = results(true);
  EXPECT_EQ(by_bias.y[0], 0);
  EXPECT_EQ(by_bias.y[1], 0);
  EXPECT_EQ(by_bias.lse[0], -kInfinity);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(by_bias.grad_q[i], 0);
}

// ---- Tails --------------------------------------------------------------------------------------

double normal_cdf(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0)); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// Returns the ulp of `wanted` in f32, or of the smallest normal number if `wanted` is below it.
double ulp_of(double wanted) {
  const double size = std::max(std::fabs(wanted), 0x1p-126);
  return std::ldexp(1, static_cast<int>(std::floor(std::log2(size))) - 23);
}

class Tails : public Numerics {
 protected:
  // Returns arguments from `least` to 6.
  static std::vector<float> arguments(float least) {
    std::vector<float> x;
    for (int i = 0; i < 40'000; ++i) {
      x.push_back(least + static_cast<float>(i) * ((6 - least) / 40'000));
    }
    return x;
  }

  template <typename Fn>
  void expect(const std::vector<float>& x, const std::vector<float>& got, double most_ulps,
              const char* what, const Fn& wanted_of) {
    double worst = 0;
    size_t place = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double wanted = wanted_of(double{x[i]});
      const double error = std::fabs(got[i] - wanted) / ulp_of(wanted);
      if (!(error <= worst)) {
        worst = error;
        place = i;
      }
    }
    EXPECT_LE(worst, most_ulps) << what << " of " << x[place] << " is " << got[place] << ", not "
                                << wanted_of(double{x[place]});
  }

  template <typename Args, typename Fn>
  void check(uint32_t op, Args args, float least, double most_ulps, const char* what,
             const Fn& wanted_of) {
    const std::vector<float> values = arguments(least);
    const auto count = static_cast<int64_t>(values.size());
    TestTensor x(b, BP_F32, {count}), y(b, BP_F32, {count});
    put(x, values);
    args.x = &x;
    args.y = &y;
    run(op, args);
    expect(values, get<float>(y), most_ulps, what, wanted_of);
  }

  template <typename Args, typename Fn>
  void check_backward(uint32_t op, Args args, float least, float most, double most_ulps,
                      const char* what, const Fn& wanted_of) {
    std::vector<float> values = arguments(least);
    std::erase_if(values, [&](float value) { return value > most; });
    const auto count = static_cast<int64_t>(values.size());
    TestTensor x(b, BP_F32, {count}), grad_y(b, BP_F32, {count}), grad_x(b, BP_F32, {count});
    put(x, values);
    put(grad_y, std::vector<float>(values.size(), 1));
    args.x = &x;
    args.grad_y = &grad_y;
    args.grad_x = &grad_x;
    run(op, args);
    expect(values, get<float>(grad_x), most_ulps, what, wanted_of);
  }
};

TEST_F(Tails, OfGelu) {
  check(BP_OP_GELU, bp_gelu_args{.approximation = BP_GELU_APPROXIMATION_NONE}, -20, 6, "gelu",
        [](double x) { return x * normal_cdf(x); });
  // The gradient has a root at -0.7518, where a relative error has no meaning.
  check_backward(BP_OP_GELU_BACKWARD,
                 bp_gelu_backward_args{.approximation = BP_GELU_BACKWARD_APPROXIMATION_NONE}, -20,
                 -1.5f, 12, "gelu_backward",
                 [](double x) { return normal_cdf(x) + x * normal_density(x); });
  TestTensor x(b, BP_F32, {5}), y(b, BP_F32, {5});
  put(x, std::vector<float>{-1e30f, -100, kInfinity, 100, -0.0f});
  run(BP_OP_GELU, bp_gelu_args{.x = &x, .y = &y, .approximation = BP_GELU_APPROXIMATION_NONE});
  EXPECT_EQ(get<float>(y), (std::vector<float>{0, 0, kInfinity, 100, 0}));
}

TEST_F(Tails, OfTheLogisticFunction) {
  check(BP_OP_SIGMOID, bp_sigmoid_args{}, -110, 6, "sigmoid", logistic);
  check(BP_OP_SILU, bp_silu_args{}, -120, 6, "silu", [](double x) { return x * logistic(x); });
  check_backward(BP_OP_SILU_BACKWARD, bp_silu_backward_args{}, -120, -2, 12, "silu_backward",
                 [](double x) { return logistic(x) * (1 + x * logistic(-x)); });
}

// ---- f64 ----------------------------------------------------------------------------------------

class Doubles : public Numerics {
 protected:
  static double ulps(double got, double wanted) {
    return std::fabs(got - wanted) / (std::fabs(wanted) * 0x1p-52 + 0x1p-1074);
  }
};

TEST_F(Doubles, HaveSoftmaxAndItsLogarithm) {
  for (const int32_t axis : {0, 1}) {
    const int64_t shape[] = {7, 37};
    TestTensor x(b, BP_F64, {7, 37}), y(b, BP_F64, {7, 37}), logs(b, BP_F64, {7, 37});
    TestTensor grad_y(b, BP_F64, {7, 37}), grad_x(b, BP_F64, {7, 37});
    std::vector<double> values, slopes;
    for (int i = 0; i < 7 * 37; ++i) values.push_back(20 * std::sin(0.7 * i));
    for (int i = 0; i < 7 * 37; ++i) slopes.push_back(1 + 0.25 * std::cos(1.3 * i));
    put(x, values);
    put(grad_y, slopes);
    ASSERT_TRUE(claims(BP_OP_SOFTMAX, BP_F64));
    ASSERT_TRUE(claims(BP_OP_LOG_SOFTMAX, BP_F64));
    run(BP_OP_SOFTMAX, bp_softmax_args{.x = &x, .y = &y, .axis = axis});
    run(BP_OP_LOG_SOFTMAX, bp_log_softmax_args{.x = &x, .y = &logs, .axis = axis});
    run(BP_OP_SOFTMAX_BACKWARD,
        bp_softmax_backward_args{.grad_y = &grad_y, .y = &y, .grad_x = &grad_x, .axis = axis});
    const auto result = get<double>(y), log_result = get<double>(logs);
    const auto gradient = get<double>(grad_x);
    run(BP_OP_LOG_SOFTMAX_BACKWARD,
        bp_log_softmax_backward_args{
            .grad_y = &grad_y, .y = &logs, .grad_x = &grad_x, .axis = axis});
    const auto log_gradient = get<double>(grad_x);
    for (int64_t line = 0; line < shape[1 - axis]; ++line) {
      const auto at = [&](int64_t i) {
        return static_cast<size_t>(axis == 1 ? line * 37 + i : i * 37 + line);
      };
      long double peak = -1000, sum = 0, weighted = 0, plain = 0;
      for (int64_t i = 0; i < shape[axis]; ++i) peak = std::max<long double>(peak, values[at(i)]);
      for (int64_t i = 0; i < shape[axis]; ++i) sum += std::exp(values[at(i)] - peak);
      for (int64_t i = 0; i < shape[axis]; ++i) {
        weighted += std::exp(values[at(i)] - peak) / sum * slopes[at(i)];
        plain += slopes[at(i)];
      }
      for (int64_t i = 0; i < shape[axis]; ++i) {
        const long double shifted = values[at(i)] - peak, y_i = std::exp(shifted) / sum;
        // The kernel rounds the difference before it computes the exponential.
        const auto most_ulps = static_cast<double>(4 - shifted);
        EXPECT_LE(ulps(result[at(i)], static_cast<double>(y_i)), most_ulps);
        const auto log_y = static_cast<double>(shifted - std::log(sum));
        EXPECT_LE(std::fabs(log_result[at(i)] - log_y), 8e-16 * (1 + std::fabs(log_y)));
        EXPECT_LE(
            std::fabs(gradient[at(i)] - static_cast<double>(y_i * (slopes[at(i)] - weighted))),
            4e-15 * static_cast<double>(y_i));
        EXPECT_LE(std::fabs(log_gradient[at(i)] - static_cast<double>(slopes[at(i)] - y_i * plain)),
                  4e-14);
      }
    }
  }
}

TEST_F(Doubles, HaveExponentialsAndLogarithms) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0,    -0.0, 1,         -1,       709.5,     710,    -708.2, -744.9,
                                -746, 1e-9, -infinity, infinity, 0x1p-1070, 5e-308, 1e308};
  for (int i = 0; i < 5000; ++i) values.push_back(-740 + 0.2897 * i);
  for (int i = 0; i < 5000; ++i) values.push_back(std::exp(-700 + 0.2789 * i));
  const auto count = static_cast<int64_t>(values.size());
  ASSERT_TRUE(claims(BP_OP_EXP, BP_F64));
  ASSERT_TRUE(claims(BP_OP_LOG, BP_F64));
  TestTensor x(b, BP_F64, {count}), y(b, BP_F64, {count});
  put(x, values);
  run(BP_OP_EXP, bp_exp_args{.x = &x, .y = &y});
  const std::vector<double> powers = get<double>(y);
  run(BP_OP_LOG, bp_log_args{.x = &x, .y = &y});
  const std::vector<double> logs = get<double>(y);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto power = static_cast<double>(std::exp(static_cast<long double>(values[i])));
    if (std::isinf(power)) {
      EXPECT_EQ(powers[i], power) << "exp of " << values[i];
    } else {
      EXPECT_LE(std::fabs(powers[i] - power), 3 * 0x1p-52 * power + 0x1p-1073) << values[i];
    }
    const auto log = static_cast<double>(std::log(static_cast<long double>(values[i])));
    if (std::isnan(log) || std::isinf(log)) {
      EXPECT_TRUE(std::isnan(log) ? std::isnan(logs[i]) : logs[i] == log) << "log of " << values[i];
    } else {
      EXPECT_LE(ulps(logs[i], log), 3) << "log of " << values[i];
    }
  }
}

}  // namespace
}  // namespace bp
