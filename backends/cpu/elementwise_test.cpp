// The element-wise kernels whose values need a formula, or a choice, against the C library.
#include <cmath>
#include <limits>
#include <random>

#include "backends/common/test_backend.hpp"
#include "backends/cpu/kernels/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Float16;
using kernels::narrow;
using kernels::widen;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Elementwise : public testing::Test {
 protected:
  template <typename Args>
  void run(uint32_t op, const Args& args) {
    ASSERT_EQ(b_.launch(op, args), BP_OK) << b_.text;
  }

  TestBackend b_{BACKEND_PATH, {{"threads", "3"}}};
};

TEST_F(Elementwise, ChooseTheSmallerAndCompare) {
  TestTensor a(b_, BP_BF16, {6}), c(b_, BP_BF16, {6}), y(b_, BP_BF16, {6}),
      is_less(b_, BP_BOOL, {6});
  const std::vector<float> left{1, kNaN, -0.0f, kInfinity, -3, 2},
      right{2, 0, 0.0f, -kInfinity, kNaN, 2};
  for (int64_t i = 0; i < 6; ++i) {
    a.at<BFloat16>(i) = BFloat16::from_f32(left[static_cast<size_t>(i)]);
    c.at<BFloat16>(i) = BFloat16::from_f32(right[static_cast<size_t>(i)]);
  }
  run(BP_OP_MINIMUM, bp_minimum_args{.a = &a, .b = &c, .y = &y});
  EXPECT_EQ(y.at<BFloat16>(0).to_f32(), 1);
  EXPECT_TRUE(std::isnan(y.at<BFloat16>(1).to_f32()));
  EXPECT_EQ(y.at<BFloat16>(3).to_f32(), -kInfinity);
  EXPECT_TRUE(std::isnan(y.at<BFloat16>(4).to_f32()));
  run(BP_OP_LT, bp_lt_args{.a = &a, .b = &c, .y = &is_less});
  EXPECT_EQ(is_less.get<uint8_t>(), (std::vector<uint8_t>{1, 0, 0, 0, 0, 0}));
  TestTensor n(b_, BP_I64, {3}, 2), positive(b_, BP_I64, {3});
  n.set<int64_t>({-5, 7, std::numeric_limits<int64_t>::min()});
  run(BP_OP_ABS, bp_abs_args{.x = &n, .y = &positive});
  EXPECT_EQ(positive.get<int64_t>(),
            (std::vector<int64_t>{5, 7, std::numeric_limits<int64_t>::min()}));
}

TEST_F(Elementwise, SelectByConditionsOfEveryWidthAndLayout) {
  const auto check = [this]<typename T>(bp_dtype dtype, T) {
    TestTensor a(b_, dtype, {40, 70}), c(b_, dtype, {70, 40}), y(b_, dtype, {40, 70}, 2);
    TestTensor chosen(b_, BP_BOOL, {1, 70});
    chosen.expand(0, 40);
    c.permute({1, 0});
    for (int64_t i = 0; i < 70; ++i) chosen.at<uint8_t>(i) = i % 3 == 0;
    for (int64_t i = 0; i < a.size(); ++i) {
      a.at<T>(i) = static_cast<T>(i % 100);
      c.at<T>(i) = static_cast<T>(i % 100 + 100);
    }
    run(BP_OP_WHERE, bp_where_args{.condition = &chosen, .a = &a, .b = &c, .y = &y});
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y.at<T>(i), static_cast<T>(i % 70 % 3 == 0 ? i % 100 : i % 100 + 100)) << i;
    }
  };
  check(BP_U8, uint8_t{});
  check(BP_I16, int16_t{});
  check(BP_I32, int32_t{});
  check(BP_F64, double{});
}

// A function, what it should give, and the error that is allowed, for x and the true value.
using Function = long double(long double);
using Bound = double(double x, double y, double unit);

// Magnitudes over all exponents where the functions bend, both signs, and special values.
template <typename T>
std::vector<T> samples(int64_t count, double most_exponent) {
  std::mt19937_64 random(20240607);
  std::uniform_real_distribution<double> exponents(-12, most_exponent);
  std::vector<T> values{0, T(-0.0), std::numeric_limits<T>::denorm_min(),
                        -std::numeric_limits<T>::min()};
  while (std::ssize(values) < count) {
    const double magnitude = std::exp2(exponents(random));
    values.push_back(static_cast<T>((random() & 1) != 0 ? magnitude : -magnitude));
  }
  return values;
}

class Activations : public Elementwise {
 protected:
  // The largest error over the bound, for y = op(x).
  template <typename T, typename Args>
  double worst(bp_dtype dtype, uint32_t op, Args args, Function* function, Bound* bound,
               double most_exponent = 8) {
    const std::vector<T> values = samples<T>(300'000, most_exponent);
    TestTensor x(b_, dtype, {std::ssize(values)}), y(b_, dtype, {std::ssize(values)});
    x.set<T>(values);
    args.x = &x;
    args.y = &y;
    run(op, args);
    double largest = 0;
    const double unit = std::numeric_limits<T>::epsilon() / 2;
    for (int64_t i = 0; i < x.size(); ++i) {
      const long double expected = function(x.at<T>(i));
      const auto error = std::abs(static_cast<double>(y.at<T>(i) - expected));
      const double allowed = bound(x.at<T>(i), static_cast<double>(expected), unit) +
                             static_cast<double>(std::numeric_limits<T>::denorm_min());
      if (error / allowed > largest) {
        largest = error / allowed;
        worst_x = x.at<T>(i);
      }
    }
    return largest;
  }

  template <typename Args>
  void expect(const char* name, uint32_t op, const Args& args, Function* function, Bound* bound,
              double most_exponent = 8) {
    const double f32 = worst<float>(BP_F32, op, args, function, bound, most_exponent);
    EXPECT_LE(f32, 1) << name << " f32 at " << worst_x;
    const double f64 = worst<double>(BP_F64, op, args, function, bound, most_exponent);
    EXPECT_LE(f64, 1) << name << " f64 at " << worst_x;
    std::printf("%s: %.2f and %.2f of the bound in f32 and f64\n", name, f32, f64);
  }

  double worst_x = 0;
};

// In units of the last place of y.
template <int kUlps>
double ulps(double, double y, double unit) {
  return kUlps * std::exp2(std::floor(std::log2(std::abs(y)))) * 2 * unit;
}

// The bounds are those of the conformance suite, or tighter.
TEST_F(Activations, StayWithinTheirErrors) {
  expect(
      "exp", BP_OP_EXP, bp_exp_args{}, [](long double x) { return std::exp(x); }, ulps<2>, 6.4);
  expect(
      "tanh", BP_OP_TANH, bp_tanh_args{}, [](long double x) { return std::tanh(x); }, ulps<3>);
  const auto sigmoid = [](long double x) { return 1 / (1 + std::exp(-x)); };
  expect("sigmoid", BP_OP_SIGMOID, bp_sigmoid_args{}, sigmoid, ulps<3>);
  const auto silu = [](long double x) { return x / (1 + std::exp(-x)); };
  // Below -87 the sigmoid in it is subnormal.
  expect("silu", BP_OP_SILU, bp_silu_args{}, silu, [](double x, double y, double unit) {
    return ulps<4>(x, y, unit) + (x < -87 ? std::numeric_limits<float>::min() : 0);
  });
  const auto gelu = [](long double x) { return x * std::erfc(-x / std::sqrt(2.0L)) / 2; };
  expect("gelu", BP_OP_GELU, bp_gelu_args{.approximation = BP_GELU_APPROXIMATION_NONE}, gelu,
         [](double x, double, double unit) { return 8 * unit * std::abs(x); });
  const auto gelu_tanh = [](long double x) {
    const long double u = std::sqrt(2 / 3.14159265358979323846264L) * (x + 0.044715L * x * x * x);
    return x / (1 + std::exp(-2 * u));
  };
  expect("gelu(tanh)", BP_OP_GELU, bp_gelu_args{.approximation = BP_GELU_APPROXIMATION_TANH},
         gelu_tanh, [](double x, double, double unit) { return 8 * unit * std::abs(x); });
}

}  // namespace
}  // namespace bp
