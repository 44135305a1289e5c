// Tests element-wise kernels that compute a formula or make a choice against the C library.
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/narrow.hpp"

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

// The exact result is 1.5 * 0.99^100 = 0.549. If 0.99 were rounded to bf16, it would be 0.434.
TEST_F(Elementwise, ComputeWithInlineOperandsInF32) {
  for (const bool is_tensor : {false, true}) {
    TestTensor x(b_, BP_BF16, {70}), operand(b_, BP_F32, {1});
    operand.set<float>({0.99f});
    operand.expand(0, 70);
    for (int64_t i = 0; i < x.size(); ++i) x.at<BFloat16>(i) = BFloat16::from_f32(1.5f);
    bp_mul_args args{.a = &x, .b = is_tensor ? &operand : nullptr, .y = &x};
    args.b_scalar = {BP_F64, 0, std::bit_cast<uint64_t>(0.99)};
    for (int step = 0; step < 100; ++step) run(BP_OP_MUL, args);
    for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(x.at<BFloat16>(i).to_f32(), 0.55859375f) << i;
  }
}

TEST_F(Elementwise, CompareWithInlineOperandsInF32) {
  TestTensor x(b_, BP_F16, {33}), y(b_, BP_BOOL, {33});
  const Float16 tenth = Float16::from_f32(0.1f);  // It is 0.09998.
  for (int64_t i = 0; i < x.size(); ++i) x.at<Float16>(i) = tenth;
  const bp_scalar scalar{BP_F64, 0, std::bit_cast<uint64_t>(0.1)};
  run(BP_OP_LT, bp_lt_args{.a = &x, .b_scalar = scalar, .y = &y});
  EXPECT_EQ(y.get<uint8_t>(), std::vector<uint8_t>(33, 1));
  run(BP_OP_EQ, bp_eq_args{.a = &x, .b_scalar = scalar, .y = &y});
  EXPECT_EQ(y.get<uint8_t>(), std::vector<uint8_t>(33, 0));
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

// One operand is transposed tile by tile, and the other is one repeated value. A result of this
// size is written past the caches, in vectors that begin at whole cache lines.
TEST_F(Elementwise, WriteWhatNoCacheHoldsAtAnyAddress) {
  constexpr int64_t kCount = 2200000;
  for (const uint64_t skipped : {1u, 5u, 8u, 15u}) {
    TestTensor x(b_, BP_F32, {kCount}), y(b_, BP_F32, {kCount + 16});
    for (int64_t i = 0; i < kCount; ++i) x.at<float>(i) = static_cast<float>(i);
    for (int64_t i = 0; i < y.size(); ++i) y.at<float>(i) = -1;
    bp_tensor part = *&y;
    part.byte_offset = skipped * sizeof(float);
    part.shape = x.shape().data();
    run(BP_OP_ADD, bp_add_args{.a = &x, .b = &x, .y = &part});
    const auto first = static_cast<int64_t>(skipped);
    for (int64_t i = 0; i < y.size(); ++i) {
      const bool is_inside = i >= first && i < first + kCount;
      ASSERT_EQ(y.at<float>(i), is_inside ? static_cast<float>(2 * (i - first)) : -1) << i;
    }
  }
}

TEST_F(Elementwise, AddOperandsThatLieAcross) {
  const auto check = [this]<typename T>(bp_dtype dtype, T, int64_t rows, int64_t cols) {
    TestTensor across(b_, dtype, {cols, rows}), along(b_, dtype, {rows, cols}, 2),
        column(b_, dtype, {rows, 1}), y(b_, dtype, {rows, cols}), z(b_, dtype, {rows, cols});
    across.permute({1, 0});
    column.expand(1, cols);
    const auto value = [](int64_t i) { return narrow<T>(static_cast<double>(i % 61)); };
    for (int64_t i = 0; i < y.size(); ++i) {
      across.at<T>(i) = value(i * 7);
      along.at<T>(i) = value(i * 5 + 1);
    }
    for (int64_t i = 0; i < rows; ++i) column.at<T>(i * cols) = value(i);
    run(BP_OP_ADD, bp_add_args{.a = &across, .b = &along, .y = &y});
    run(BP_OP_SUB, bp_sub_args{.a = &column, .b = &across, .y = &z});
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(widen(y.at<T>(i)), static_cast<float>(i * 7 % 61 + (i * 5 + 1) % 61)) << i;
      ASSERT_EQ(widen(z.at<T>(i)), static_cast<float>(i / cols % 61 - i * 7 % 61)) << i;
    }
    run(BP_OP_ADD, bp_add_args{.a = &across, .b = &across, .y = &across});
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(widen(across.at<T>(i)), static_cast<float>(2 * (i * 7 % 61))) << i;
    }
  };
  for (const auto& [rows, cols] : {std::pair{1, 5}, {33, 64}, {70, 131}, {3, 9000}}) {
    check(BP_BF16, BFloat16{}, rows, cols);
    check(BP_F32, float{}, rows, cols);
    check(BP_F64, double{}, rows, cols);
  }
  check(BP_F32, float{}, 2048, 1040);
}

// `Function` gives the true value at x; the other type gives the error that is allowed for x and
// that value.
using Function = long double(long double);
using Bound = double(double x, double y, double unit);

// Returns values of both signs over all exponents where the functions are not straight, and special
// values.
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
  // Returns the largest ratio of error to bound for y = op(x).
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

// Returns kUlps units in the last place of y.
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
  // Below -87 the sigmoid inside silu is subnormal.
  expect("silu", BP_OP_SILU, bp_silu_args{}, silu, [](double x, double y, double unit) {
    return ulps<4>(x, y, unit) + (x < -87 ? std::numeric_limits<float>::min() : 0);
  });
  const auto gelu = [](long double x) { return x * std::erfc(-x / std::sqrt(2.0L)) / 2; };
  // The largest errors are 5.7 ulp in f32 and 6.6 ulp in f64, far below 0.
  expect("gelu", BP_OP_GELU, bp_gelu_args{.approximation = BP_GELU_APPROXIMATION_NONE}, gelu,
         ulps<7>);
  const auto gelu_tanh = [](long double x) {
    const long double u = std::sqrt(2 / 3.14159265358979323846264L) * (x + 0.044715L * x * x * x);
    return x / (1 + std::exp(-2 * u));
  };
  expect("gelu(tanh)", BP_OP_GELU, bp_gelu_args{.approximation = BP_GELU_APPROXIMATION_TANH},
         gelu_tanh, [](double x, double, double unit) { return 8 * unit * std::abs(x); });
}

// Tests each gradient against its formula, in the dtype with the suite's strictest bound.
class Gradients : public Elementwise {
 protected:
  // `function` gives the derivative at x, or at y if the op saves y.
  template <typename T, typename Args>
  void expect(bp_dtype dtype, const char* name, uint32_t op, Args args, Function* function,
              std::vector<T> values) {
    const std::vector<T> extremes{T(0), T(-0.0), T(1e-30), T(-60), T(60), T(-1e30), T(1e30)};
    if (!(op == BP_OP_TANH_BACKWARD || op == BP_OP_SIGMOID_BACKWARD)) {
      values.insert(values.end(), extremes.begin(), extremes.end());
    }
    const int64_t count = std::ssize(values);
    TestTensor saved(b_, dtype, {count}), grad_y(b_, dtype, {count}), grad_x(b_, dtype, {count});
    saved.set<T>(values);
    for (int64_t i = 0; i < count; ++i) grad_y.at<T>(i) = T(1.5);
    if constexpr (requires { args.y; }) {
      args.y = &saved;
    } else {
      args.x = &saved;
    }
    args.grad_y = &grad_y;
    args.grad_x = &grad_x;
    run(op, args);
    const double unit = std::numeric_limits<T>::epsilon() / 2;
    for (int64_t i = 0; i < count; ++i) {
      const auto expected = static_cast<double>(1.5L * function(saved.at<T>(i)));
      ASSERT_NEAR(grad_x.at<T>(i), expected, 24 * unit) << name << " at " << saved.at<T>(i);
    }
  }

  template <typename Args>
  void expect(const char* name, uint32_t op, const Args& args, Function* function,
              double least = -9, double most = 9) {
    std::vector<float> values;
    for (int i = 0; i <= 5000; ++i) {
      values.push_back(static_cast<float>(least + (most - least) * i / 5000));
    }
    expect<float>(BP_F32, name, op, args, function, values);
    expect<double>(BP_F64, name, op, args, function, {values.begin(), values.end()});
  }
};

TEST_F(Gradients, FollowTheirFormulas) {
  expect(
      "tanh_backward", BP_OP_TANH_BACKWARD, bp_tanh_backward_args{},
      [](long double y) { return 1 - y * y; }, -1, 1);
  expect(
      "sigmoid_backward", BP_OP_SIGMOID_BACKWARD, bp_sigmoid_backward_args{},
      [](long double y) { return y * (1 - y); }, 0, 1);
  expect("silu_backward", BP_OP_SILU_BACKWARD, bp_silu_backward_args{}, [](long double x) {
    const long double s = 1 / (1 + std::exp(-x)), other = 1 / (1 + std::exp(x));
    return s * (1 + x * other);
  });
  expect("gelu_backward", BP_OP_GELU_BACKWARD,
         bp_gelu_backward_args{.approximation = BP_GELU_APPROXIMATION_NONE}, [](long double x) {
           return std::erfc(-x / std::sqrt(2.0L)) / 2 +
                  x * std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846264L);
         });
  expect("gelu_backward(tanh)", BP_OP_GELU_BACKWARD,
         bp_gelu_backward_args{.approximation = BP_GELU_APPROXIMATION_TANH}, [](long double x) {
           const long double c = std::sqrt(2 / 3.14159265358979323846264L), a = 0.044715L;
           const long double t = std::tanh(c * (x + a * x * x * x));
           const long double rest = 1 - t * t;
           return (1 + t) / 2 + (rest == 0 ? 0 : x * rest * c * (1 + 3 * a * x * x) / 2);
         });
}

// A result that is written past the caches may begin anywhere in a line.
TEST_F(Elementwise, StreamToAnyAddress) {
  constexpr int64_t kCount = 3'300'000;
  TestTensor x(b_, BP_F32, {kCount}), y(b_, BP_F32, {kCount + 16});
  for (int64_t i = 0; i < kCount; ++i) x.at<float>(i) = static_cast<float>(i % 2003);
  for (const uint64_t offset : {1u, 7u, 15u}) {
    bp_tensor part = *&y;
    part.shape = x.shape().data();
    part.byte_offset = offset * sizeof(float);
    run(BP_OP_TANH, bp_tanh_args{.x = &x, .y = &part});
    for (int64_t i = 0; i < kCount; i += 11) {
      ASSERT_NEAR(y.at<float>(i + static_cast<int64_t>(offset)), std::tanh(x.at<float>(i)), 1e-6)
          << i;
    }
  }
}

TEST_F(Gradients, RefuseAnApproximationThatIsNotKnown) {
  TestTensor x(b_, BP_F32, {1}), y(b_, BP_F32, {1});
  EXPECT_EQ(b_.launch(BP_OP_GELU, bp_gelu_args{.x = &x, .y = &y, .approximation = 3}),
            BP_INVALID_ARGUMENT);
  EXPECT_NE(b_.text.find("gelu: approximation is 3"), std::string::npos) << b_.text;
}

}  // namespace
}  // namespace bp
