// Tests rope, softmax_backward and log_softmax_backward against plain loops in f64: every dtype,
// layouts, both forms of pairs, broadcast angles, calls in place, and sums over every axis.
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

template <typename T>
constexpr bp_dtype kDtypeOf = BP_F32;
template <>
constexpr bp_dtype kDtypeOf<double> = BP_F64;
template <>
constexpr bp_dtype kDtypeOf<Float16> = BP_F16;
template <>
constexpr bp_dtype kDtypeOf<BFloat16> = BP_BF16;

template <typename T>
class Gradients : public testing::Test {
 protected:
  using Sum = Compute<T>;
  static constexpr bp_dtype kOwnDtype = kDtypeOf<T>;
  static constexpr bp_dtype kSumDtype = sizeof(Sum) == 8 ? BP_F64 : BP_F32;
  static constexpr double kTolerance = sizeof(T) == 8        ? 1e-14
                                       : sizeof(T) == 4      ? 4e-6
                                       : kOwnDtype == BP_F16 ? 2e-3
                                                             : 1.6e-2;

  template <typename E>
  void fill(TestTensor& t) {
    std::normal_distribution<float> values;
    for (int64_t i = 0; i < t.size(); ++i) t.at<E>(i) = kernels::narrow<E>(values(random));
  }
  static double value(TestTensor& t, int64_t i) {
    return static_cast<double>(kernels::widen(t.at<T>(i)));
  }

  // x is (.., heads, width), cos and sin (.., heads, pairs).
  void check_rope(TestTensor& x, TestTensor& y, TestTensor& cos, TestTensor& sin,
                  bool is_interleaved, bool is_backward) {
    const int64_t width = x.shape().back(), pairs = cos.shape().back();
    std::vector<double> before;
    for (int64_t i = 0; i < x.size(); ++i) before.push_back(value(x, i));
    if (is_backward) {
      ASSERT_EQ(
          b.launch(BP_OP_ROPE_BACKWARD, bp_rope_backward_args{.grad_y = &x,
                                                              .cos = &cos,
                                                              .sin = &sin,
                                                              .grad_x = &y,
                                                              .is_interleaved = is_interleaved}),
          BP_OK)
          << b.text;
    } else {
      ASSERT_EQ(
          b.launch(
              BP_OP_ROPE,
              bp_rope_args{
                  .x = &x, .cos = &cos, .sin = &sin, .y = &y, .is_interleaved = is_interleaved}),
          BP_OK)
          << b.text;
    }
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t row = i / width, c = i % width;
      double expected = before[static_cast<size_t>(i)];
      if (c < 2 * pairs) {
        const int64_t pair = is_interleaved ? c / 2 : c % pairs;
        const bool is_second = is_interleaved ? c % 2 == 1 : c >= pairs;
        const int64_t distance = is_interleaved ? 1 : pairs;
        const double other = before[static_cast<size_t>(is_second ? i - distance : i + distance)];
        const double c_value = static_cast<double>(cos.at<Sum>(row * pairs + pair));
        const double s_value = static_cast<double>(sin.at<Sum>(row * pairs + pair));
        const double sign = is_second == is_backward ? -1 : 1;
        expected = expected * c_value + sign * other * s_value;
      }
      ASSERT_NEAR(value(y, i), expected, kTolerance * std::max(1.0, std::abs(expected)))
          << "element " << c << " of row " << row;
    }
  }

  void check_softmax(TestTensor& grad_y, TestTensor& y, TestTensor& grad_x, int32_t axis,
                     bool is_log) {
    fill<T>(grad_y);
    fill<T>(y);
    std::vector<double> grads, values;
    for (int64_t i = 0; i < y.size(); ++i) grads.push_back(value(grad_y, i));
    for (int64_t i = 0; i < y.size(); ++i) values.push_back(value(y, i));
    if (is_log) {
      ASSERT_EQ(b.launch(BP_OP_LOG_SOFTMAX_BACKWARD,
                         bp_log_softmax_backward_args{
                             .grad_y = &grad_y, .y = &y, .grad_x = &grad_x, .axis = axis}),
                BP_OK)
          << b.text;
    } else {
      ASSERT_EQ(b.launch(BP_OP_SOFTMAX_BACKWARD,
                         bp_softmax_backward_args{
                             .grad_y = &grad_y, .y = &y, .grad_x = &grad_x, .axis = axis}),
                BP_OK)
          << b.text;
    }
    int64_t inner = 1;
    const int64_t count = y.shape()[static_cast<size_t>(axis)];
    for (size_t i = static_cast<size_t>(axis) + 1; i < y.shape().size(); ++i) inner *= y.shape()[i];
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t first = i / (inner * count) * inner * count + i % inner;
      double sum = 0;
      for (int64_t j = 0; j < count; ++j) {
        const auto at = static_cast<size_t>(first + j * inner);
        sum += is_log ? grads[at] : grads[at] * values[at];
      }
      const double g = grads[static_cast<size_t>(i)], v = values[static_cast<size_t>(i)];
      const double expected = is_log ? g - std::exp(v) * sum : v * (g - sum);
      ASSERT_NEAR(value(grad_x, i), expected, 8 * kTolerance * std::max(1.0, std::abs(expected)))
          << "element " << i << " over axis " << axis;
    }
  }

  // Checks every 37th column of x (outer, count, inner).
  void check_softmax_columns(const std::vector<int64_t>& shape) {
    TestTensor x(b, kOwnDtype, shape), y(b, kOwnDtype, shape), log_y(b, kOwnDtype, shape);
    for (int64_t i = 0; i < x.size(); ++i) {
      x.at<T>(i) = kernels::narrow<T>(static_cast<Sum>(i * 7919 % 1021 - 510) / Sum{64});
    }
    const bp_softmax_args args{.x = &x, .y = &y, .axis = 1};
    const bp_log_softmax_args log_args{.x = &x, .y = &log_y, .axis = 1};
    ASSERT_EQ(b.launch(BP_OP_SOFTMAX, args), BP_OK) << b.text;
    ASSERT_EQ(b.launch(BP_OP_LOG_SOFTMAX, log_args), BP_OK) << b.text;
    const int64_t count = shape[1], inner = shape[2];
    for (int64_t column = 0; column < shape[0] * inner; column += 37) {
      const int64_t first = column / inner * inner * count + column % inner;
      double peak = value(x, first), sum = 0;
      for (int64_t i = 0; i < count; ++i) peak = std::max(peak, value(x, first + i * inner));
      for (int64_t i = 0; i < count; ++i) sum += std::exp(value(x, first + i * inner) - peak);
      for (int64_t i = first; i < first + count * inner; i += inner) {
        const double expected = std::exp(value(x, i) - peak) / sum;
        ASSERT_NEAR(value(y, i), expected, 2 * kTolerance * expected + 1e-7) << "element " << i;
        ASSERT_NEAR(value(log_y, i), value(x, i) - peak - std::log(sum), 20 * kTolerance);
      }
    }
  }

  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  std::mt19937 random{20240501};
};

using Elements = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(Gradients, Elements);

// The test has rows whose exponentials are kept and rows whose are not, and results that are
// written past the caches. Rows and columns begin anywhere in a cache line.
TYPED_TEST(Gradients, SoftmaxOfLongRowsAndOfManyElements) {
  this->check_softmax_columns({40, 5003, 1});
  this->check_softmax_columns({3, 50, 1500});
  this->check_softmax_columns({3301, 1001, 1});
  this->check_softmax_columns({2, 1500, 1101});
}

TYPED_TEST(Gradients, RopeTurnsPairsOfEveryLayout) {
  constexpr bp_dtype dtype = TestFixture::kOwnDtype, sum_dtype = TestFixture::kSumDtype;
  for (const bool is_interleaved : {false, true}) {
    for (const bool is_backward : {false, true}) {
      for (const int64_t pairs : {0, 1, 5, 16, 70}) {
        TestTensor x(this->b, dtype, {3, 9, 2 * pairs + 3}),
            y(this->b, dtype, {9, 3, 2 * pairs + 3}, 2), cos(this->b, sum_dtype, {1, 9, pairs}),
            sin(this->b, sum_dtype, {1, 9, pairs}, 2);
        y.permute({1, 0, 2});
        this->template fill<TypeParam>(x);
        this->template fill<Compute<TypeParam>>(cos);
        this->template fill<Compute<TypeParam>>(sin);
        cos.expand(0, 3);
        sin.expand(0, 3);
        this->check_rope(x, y, cos, sin, is_interleaved, is_backward);
        this->check_rope(x, x, cos, sin, is_interleaved, is_backward);
      }
    }
  }
}

TYPED_TEST(Gradients, RopeTakesOneHead) {
  constexpr bp_dtype dtype = TestFixture::kOwnDtype, sum_dtype = TestFixture::kSumDtype;
  TestTensor x(this->b, dtype, {10}), cos(this->b, sum_dtype, {5}), sin(this->b, sum_dtype, {5});
  this->template fill<TypeParam>(x);
  this->template fill<Compute<TypeParam>>(cos);
  this->template fill<Compute<TypeParam>>(sin);
  this->check_rope(x, x, cos, sin, true, false);
}

TYPED_TEST(Gradients, OfSoftmaxSumOverEveryAxis) {
  constexpr bp_dtype dtype = TestFixture::kOwnDtype;
  for (const bool is_log : {false, true}) {
    for (const int32_t axis : {0, 1, 2}) {
      TestTensor grad_y(this->b, dtype, {5, 7, 37}), y(this->b, dtype, {5, 7, 37}),
          grad_x(this->b, dtype, {5, 7, 37});
      this->check_softmax(grad_y, y, grad_x, axis, is_log);
      this->check_softmax(grad_y, y, grad_y, axis, is_log);
      TestTensor strided(this->b, dtype, {37, 7, 5}, 2);
      strided.permute({2, 1, 0});
      this->check_softmax(grad_y, strided, grad_x, axis, is_log);
      this->check_softmax(grad_y, y, strided, axis, is_log);
    }
  }
}

}  // namespace
}  // namespace bp
