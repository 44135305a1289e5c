// Compares every family of kernels with plain loops. The conformance suite judges the kernels; this
// small test fails fast and names the broken family.
#include <cmath>
#include <limits>
#include <random>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Kernels : public testing::Test {
 protected:
  static bp_scalar scalar(double value) {
    bp_scalar s{.dtype = BP_F64};
    std::memcpy(&s.bits, &value, sizeof(value));
    return s;
  }
  static bp_scalar scalar(int64_t value) {
    return {.dtype = BP_I64, .bits = static_cast<uint64_t>(value)};
  }

  // Fills `t` with values in steps of 1/4, among them equal values and both zeros.
  template <typename T>
  void fill_random(TestTensor& t) {
    std::uniform_int_distribution<int> steps(-40, 40);
    for (int64_t i = 0; i < t.size(); ++i) t.at<T>(i) = static_cast<T>(steps(random) / 4.0);
  }

  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  std::mt19937 random{20240501};
};

TEST_F(Kernels, AddTensorsOfEveryLayout) {
  for (const int64_t size : {0, 1, 7, 100'000}) {
    TestTensor x(b, BP_F32, {size}), y(b, BP_F32, {size}, 3), z(b, BP_F32, {size}, 2);
    fill_random<float>(x);
    fill_random<float>(y);
    ASSERT_EQ(b.launch(BP_OP_ADD, bp_add_args{.a = &x, .b = &y, .y = &z}), BP_OK) << b.text;
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(z.at<float>(i), x.at<float>(i) + y.at<float>(i));
  }
  TestTensor x(b, BP_I64, {40, 30, 50}), y(b, BP_I64, {1, 30, 1}), z(b, BP_I64, {50, 40, 30});
  fill_random<int64_t>(x);
  fill_random<int64_t>(y);
  y.expand(0, 40);
  y.expand(2, 50);
  z.permute({1, 2, 0});
  ASSERT_EQ(b.launch(BP_OP_SUB, bp_sub_args{.a = &x, .b = &y, .y = &z}), BP_OK) << b.text;
  for (int64_t i = 0; i < z.size(); ++i) {
    ASSERT_EQ(z.at<int64_t>(i), x.at<int64_t>(i) - y.at<int64_t>(i)) << i;
  }
}

TEST_F(Kernels, TakeAnInlineOperandAndKeepNan) {
  TestTensor x(b, BP_F32, {5}), y(b, BP_F32, {5}), is_equal(b, BP_BOOL, {5});
  x.set<float>({1, kNan, -0.0f, 3, -2});
  ASSERT_EQ(b.launch(BP_OP_MAXIMUM, bp_maximum_args{.a = &x, .b_scalar = scalar(0.5), .y = &y}),
            BP_OK);
  EXPECT_EQ(y.at<float>(0), 1);
  EXPECT_TRUE(std::isnan(y.at<float>(1)));
  EXPECT_EQ(y.at<float>(2), 0.5f);
  ASSERT_EQ(b.launch(BP_OP_EQ, bp_eq_args{.a = &x, .b_scalar = scalar(int64_t{0}), .y = &is_equal}),
            BP_OK);
  EXPECT_EQ(is_equal.get<uint8_t>(), (std::vector<uint8_t>{0, 0, 1, 0, 0}));
  ASSERT_EQ(b.launch(BP_OP_RELU, bp_relu_args{.x = &x, .y = &x}), BP_OK);
  EXPECT_TRUE(std::isnan(x.at<float>(1)));
  EXPECT_TRUE(std::signbit(x.at<float>(2)));
  EXPECT_EQ(x.at<float>(4), 0);
}

TEST_F(Kernels, TakeExponentialsAndLogarithmsWithTheirSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  TestTensor x(b, BP_F32, {7}), y(b, BP_F32, {7}), back(b, BP_F32, {7});
  x.set<float>({0, 1, -100, infinity, -infinity, kNan, 200});
  ASSERT_EQ(b.launch(BP_OP_EXP, bp_exp_args{.x = &x, .y = &y}), BP_OK);
  EXPECT_EQ(y.at<float>(0), 1);
  EXPECT_FLOAT_EQ(y.at<float>(1), std::exp(1.0f));
  EXPECT_NEAR(y.at<float>(2), std::exp(-100.0), 3e-45) << "a subnormal result";
  EXPECT_EQ(y.at<float>(3), infinity);
  EXPECT_EQ(y.at<float>(4), 0);
  EXPECT_TRUE(std::isnan(y.at<float>(5)));
  EXPECT_EQ(y.at<float>(6), infinity);
  ASSERT_EQ(b.launch(BP_OP_LOG, bp_log_args{.x = &y, .y = &back}), BP_OK);
  EXPECT_FLOAT_EQ(back.at<float>(1), 1);
  EXPECT_EQ(back.at<float>(3), infinity);
  EXPECT_EQ(back.at<float>(4), -infinity);
  ASSERT_EQ(b.launch(BP_OP_LOG, bp_log_args{.x = &x, .y = &back}), BP_OK);
  EXPECT_TRUE(std::isnan(back.at<float>(2)));
}

TEST_F(Kernels, CopyAcrossDtypesAndAxes) {
  TestTensor x(b, BP_F32, {67, 130}), y(b, BP_I16, {130, 67}), flags(b, BP_BOOL, {67, 130});
  fill_random<float>(x);
  y.permute({1, 0});
  ASSERT_EQ(b.launch(BP_OP_COPY, bp_copy_args{.x = &x, .y = &y}), BP_OK);
  ASSERT_EQ(b.launch(BP_OP_COPY, bp_copy_args{.x = &x, .y = &flags}), BP_OK);
  for (int64_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y.at<int16_t>(i), static_cast<int16_t>(x.at<float>(i)));
    ASSERT_EQ(flags.at<uint8_t>(i), x.at<float>(i) != 0 ? 1 : 0);
  }
  TestTensor t(b, BP_F32, {130, 67});
  t.permute({1, 0});
  ASSERT_EQ(b.launch(BP_OP_COPY, bp_copy_args{.x = &x, .y = &t}), BP_OK);
  EXPECT_EQ(t.get<float>(), x.get<float>());
}

TEST_F(Kernels, FillAndCount) {
  TestTensor x(b, BP_I32, {9}, 2), value(b, BP_I32, {});
  value.set<int32_t>({-7});
  ASSERT_EQ(b.launch(BP_OP_FILL, bp_fill_args{.y = &x, .value = &value}), BP_OK);
  EXPECT_EQ(x.get<int32_t>(), std::vector<int32_t>(9, -7));
  ASSERT_EQ(b.launch(BP_OP_FILL, bp_fill_args{.y = &x, .value_scalar = scalar(2.9)}), BP_OK);
  EXPECT_EQ(x.get<int32_t>(), std::vector<int32_t>(9, 2));
  const bp_arange_args args{
      .y = &x, .start_scalar = scalar(int64_t{5}), .step_scalar = scalar(int64_t{-2})};
  ASSERT_EQ(b.launch(BP_OP_ARANGE, args), BP_OK);
  EXPECT_EQ(x.at<int32_t>(8), -11);
}

// The sum and the largest element for each index of the axes that a reduction keeps.
struct Reduced {
  std::vector<int64_t> shape;
  std::vector<double> sums;
  std::vector<float> maxima;
};

Reduced reduce(TestTensor& x, const std::vector<int64_t>& shape, const std::vector<size_t>& kept) {
  Reduced result;
  int64_t count = 1;
  result.shape.reserve(kept.size());
  for (const size_t axis : kept) result.shape.push_back(shape[axis]);
  for (const int64_t extent : result.shape) count *= extent;
  result.sums.resize(static_cast<size_t>(count));
  result.maxima.assign(static_cast<size_t>(count), -1e9f);
  std::vector<int64_t> place(shape.size());
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t rest = i, output = 0;
    for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) {
      place[axis] = rest % shape[axis];
    }
    for (const size_t axis : kept) output = output * shape[axis] + place[axis];
    float& largest = result.maxima[static_cast<size_t>(output)];
    result.sums[static_cast<size_t>(output)] += x.at<float>(i);
    if (!(x.at<float>(i) <= largest) && !std::isnan(largest)) largest = x.at<float>(i);
  }
  return result;
}

// Expects that a sum and a largest element are equal to those of `wanted`; NaN is equal to NaN.
void expect_reduced(TestTensor& sum, TestTensor& largest, const Reduced& wanted, uint32_t bits) {
  for (int64_t i = 0; i < sum.size(); ++i) {
    const auto o = static_cast<size_t>(i);
    const bool is_nan = std::isnan(wanted.maxima[o]);
    ASSERT_EQ(std::isnan(sum.at<float>(i)), is_nan) << bits << " " << o;
    ASSERT_EQ(std::isnan(largest.at<float>(i)), is_nan) << bits << " " << o;
    if (is_nan) continue;
    ASSERT_EQ(sum.at<float>(i), static_cast<float>(wanted.sums[o])) << bits << " " << o;
    ASSERT_EQ(largest.at<float>(i), wanted.maxima[o]) << bits << " " << o;
  }
}

// Reduces every set of axes of one shape, for packed and for permuted tensors.
TEST_F(Kernels, ReduceAnyAxes) {
  const std::vector<int64_t> shape{5, 3, 70, 4};
  for (const bool is_permuted : {false, true}) {
    TestTensor x(b, BP_F32, is_permuted ? std::vector<int64_t>{70, 4, 5, 3} : shape);
    if (is_permuted) x.permute({2, 3, 0, 1});
    fill_random<float>(x);
    x.at<float>(17) = kNan;
    for (uint32_t bits = 0; bits < 16; ++bits) {
      std::vector<int64_t> axes;
      std::vector<size_t> kept;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        if ((bits >> axis & 1) == 0) kept.push_back(axis);
        if ((bits >> axis & 1) != 0) axes.push_back(static_cast<int64_t>(axis));
      }
      const Reduced wanted = reduce(x, shape, kept);
      TestTensor sum(b, BP_F32, wanted.shape), largest(b, BP_F32, wanted.shape, 2);
      const bp_sum_args of_sum{.x = &x, .y = &sum, .axes_count = axes.size(), .axes = axes.data()};
      const bp_amax_args of_largest{
          .x = &x, .y = &largest, .axes_count = axes.size(), .axes = axes.data()};
      ASSERT_EQ(b.launch(BP_OP_SUM, of_sum), BP_OK) << b.text;
      ASSERT_EQ(b.launch(BP_OP_AMAX, of_largest), BP_OK) << b.text;
      expect_reduced(sum, largest, wanted, bits);
    }
  }
}

TEST_F(Kernels, CountMultiplyAndFindTheSmallestAlongAndAcross) {
  TestTensor x(b, BP_F32, {37, 300});
  for (int64_t i = 0; i < x.size(); ++i) x.at<float>(i) = i % 7 == 0 ? 0 : i % 2 == 0 ? -1 : 0.5f;
  for (int64_t i = 0; i < 300; ++i) x.at<float>(36 * 300 + i) = i == 17 ? kNan : -2;
  for (const int64_t axis : {0, 1}) {
    const int64_t kept = axis == 0 ? 300 : 37, count = axis == 0 ? 37 : 300;
    TestTensor number(b, BP_I64, {kept}), any(b, BP_BOOL, {kept}), all(b, BP_BOOL, {kept});
    TestTensor smallest(b, BP_F32, {kept}), product(b, BP_F64, {kept});
    const auto run = [&](uint32_t op, auto args, const TestTensor& y) {
      args.x = &x, args.y = &y, args.axes_count = 1, args.axes = &axis;
      ASSERT_EQ(b.launch(op, args), BP_OK) << b.text;
    };
    run(BP_OP_COUNT_NONZERO, bp_count_nonzero_args{}, number);
    run(BP_OP_ANY, bp_any_args{}, any);
    run(BP_OP_ALL, bp_all_args{}, all);
    run(BP_OP_AMIN, bp_amin_args{}, smallest);
    run(BP_OP_PROD, bp_prod_args{}, product);
    for (int64_t i = 0; i < kept; ++i) {
      int64_t holding = 0;
      float least = std::numeric_limits<float>::infinity();
      double factors = 1;
      for (int64_t k = 0; k < count; ++k) {
        const float value = x.at<float>(axis == 0 ? k * 300 + i : i * 300 + k);
        holding += value != 0 ? 1 : 0;
        factors *= value;
        least = value != value || value < least ? value : least;
      }
      ASSERT_EQ(number.at<int64_t>(i), holding) << i;
      ASSERT_EQ(any.at<bool>(i), holding > 0) << i;
      ASSERT_EQ(all.at<bool>(i), holding == count) << i;
      if (least != least) {
        ASSERT_TRUE(std::isnan(smallest.at<float>(i)) && std::isnan(product.at<double>(i))) << i;
        continue;
      }
      ASSERT_EQ(smallest.at<float>(i), least) << i;
      ASSERT_EQ(product.at<double>(i), factors) << i;
    }
  }
}

// Sums of groups of elements overflow f32, but the mean does not, along rows and across rows.
TEST_F(Kernels, MeanOfNumbersWhoseSumOverflowsIsFinite) {
  TestTensor x(b, BP_F32, {64, 200}), along(b, BP_F32, {64}), across(b, BP_F32, {200});
  for (int64_t i = 0; i < x.size(); ++i) x.at<float>(i) = i % 2 == 0 ? 3e38f : 2e38f;
  const std::vector<int64_t> rows{0}, columns{1};
  const bp_mean_args of_rows{.x = &x, .y = &along, .axes_count = 1, .axes = columns.data()};
  const bp_mean_args of_columns{.x = &x, .y = &across, .axes_count = 1, .axes = rows.data()};
  ASSERT_EQ(b.launch(BP_OP_MEAN, of_rows), BP_OK);
  ASSERT_EQ(b.launch(BP_OP_MEAN, of_columns), BP_OK);
  for (int64_t i = 0; i < along.size(); ++i) EXPECT_NEAR(along.at<float>(i) / 2.5e38, 1, 1e-6);
  for (int64_t i = 0; i < across.size(); ++i) {
    EXPECT_NEAR(across.at<float>(i) / (i % 2 == 0 ? 3e38 : 2e38), 1, 1e-6);
  }
}

// The kernel reads some rows in quarters and others in shared tiles; both have remainders.
TEST_F(Kernels, SumRowsOfEveryLengthWithinTheirBound) {
  for (const int64_t length : {1, 63, 64, 200, 4095, 4096, 5000, 20'011}) {
    TestTensor x(b, BP_F32, {37, length}), y(b, BP_F32, {37}), wide(b, BP_F64, {37}, 2);
    fill_random<float>(x);
    const std::vector<int64_t> axes{1};
    for (const bp_tensor* to : {&y, &wide}) {
      const bp_sum_args args{.x = &x, .y = to, .axes_count = 1, .axes = axes.data()};
      ASSERT_EQ(b.launch(BP_OP_SUM, args), BP_OK) << b.text;
    }
    for (int64_t row = 0; row < 37; ++row) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < length; ++i) {
        sum += x.at<float>(row * length + i);
        size += std::abs(x.at<float>(row * length + i));
      }
      ASSERT_NEAR(y.at<float>(row), sum, 5 * 0x1p-24 * size) << length << " row " << row;
      ASSERT_NEAR(wide.at<double>(row), sum, 1e-12 * size) << length << " row " << row;
    }
  }
}

TEST_F(Kernels, SumTheSameForEveryNumberOfThreads) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{700'001}, {30'000, 33}}) {
    TestTensor x(b, BP_F64, shape);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (int64_t i = 0; i < x.size(); ++i) x.at<double>(i) = uniform(random);
    const int64_t axis = 0;
    const std::vector<int64_t> kept(shape.begin() + 1, shape.end());
    std::vector<double> first;
    for (const char* threads : {"1", "2", "3", "7"}) {
      b.devices->set_option(b.devices->self, b.device, "threads", threads);
      TestTensor y(b, BP_F64, kept);
      ASSERT_EQ(
          b.launch(BP_OP_MEAN, bp_mean_args{.x = &x, .y = &y, .axes_count = 1, .axes = &axis}),
          BP_OK);
      if (first.empty()) first = y.get<double>();
      EXPECT_EQ(y.get<double>(), first) << threads << " threads";
    }
    EXPECT_NE(first[0], 0);
  }
}

TEST_F(Kernels, FindTheFirstOfTheLargest) {
  TestTensor x(b, BP_F32, {3, 40}), y(b, BP_I64, {3}), z(b, BP_I64, {40});
  for (int64_t i = 0; i < x.size(); ++i) x.at<float>(i) = static_cast<float>(i % 7);
  x.at<float>(40 + 33) = kNan;
  x.at<float>(40 + 35) = kNan;
  ASSERT_EQ(b.launch(BP_OP_ARGMAX, bp_argmax_args{.x = &x, .y = &y, .axis = 1}), BP_OK);
  EXPECT_EQ(y.get<int64_t>(), (std::vector<int64_t>{6, 33, 3}));
  ASSERT_EQ(b.launch(BP_OP_ARGMAX, bp_argmax_args{.x = &x, .y = &z, .axis = 0}), BP_OK);
  EXPECT_EQ(z.at<int64_t>(33), 1);
  for (int64_t column : {0, 1, 5, 39}) {
    int64_t best = 0;
    for (int64_t row = 1; row < 3; ++row) {
      if (x.at<float>(row * 40 + column) > x.at<float>(best * 40 + column)) best = row;
    }
    EXPECT_EQ(z.at<int64_t>(column), best) << column;
  }
}

TEST_F(Kernels, GiveTheKnownAnswersOfPhilox) {
  // The expected values are the test vectors of the method's authors: counter and key are all zero,
  // or digits of pi.
  TestTensor y(b, BP_I32, {4}), far(b, BP_I32, {100'000}), strided(b, BP_I32, {100, 1000}, 2);
  const auto draw = [&](TestTensor& to, uint64_t seed, uint64_t offset) {
    const bp_random_bits_args args{.y = &to,
                                   .seed_scalar = {.dtype = BP_U64, .bits = seed},
                                   .offset_scalar = {.dtype = BP_U64, .bits = offset}};
    ASSERT_EQ(b.launch(BP_OP_RANDOM_BITS, args), BP_OK) << b.text;
  };
  draw(y, 0, 0);
  EXPECT_EQ(y.get<uint32_t>(),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  draw(far, 0xFFFFFFFF12345678u, 99);
  draw(strided, 0xFFFFFFFF12345678u, 99);
  EXPECT_EQ(far.get<uint32_t>(), strided.get<uint32_t>());
}

TEST_F(Kernels, DropWhatUniformSays) {
  TestTensor u(b, BP_F32, {1001}), v(b, BP_F64, {1001}), x(b, BP_F32, {1001}), y(b, BP_F32, {1001});
  TestTensor seed(b, BP_U64, {}), words(b, BP_I32, {2002});
  seed.set<uint64_t>({42});
  const bp_scalar offset{.dtype = BP_U64, .bits = 7};
  fill_random<float>(x);
  ASSERT_EQ(b.launch(BP_OP_RANDOM_BITS,
                     bp_random_bits_args{.y = &words, .seed = &seed, .offset_scalar = offset}),
            BP_OK);
  ASSERT_EQ(
      b.launch(BP_OP_UNIFORM, bp_uniform_args{.y = &u, .seed = &seed, .offset_scalar = offset}),
      BP_OK);
  ASSERT_EQ(
      b.launch(BP_OP_UNIFORM, bp_uniform_args{.y = &v, .seed = &seed, .offset_scalar = offset}),
      BP_OK);
  ASSERT_EQ(b.launch(BP_OP_DROPOUT,
                     bp_dropout_args{
                         .x = &x, .y = &y, .p = 0.25, .seed = &seed, .offset_scalar = offset}),
            BP_OK);
  for (int64_t i = 0; i < 1001; ++i) {
    ASSERT_EQ(u.at<float>(i), static_cast<double>(words.at<uint32_t>(i) >> 8) * 0x1p-24);
    const uint64_t word = words.at<uint32_t>(2 * i) | uint64_t{words.at<uint32_t>(2 * i + 1)} << 32;
    ASSERT_EQ(v.at<double>(i), static_cast<double>(word >> 11) * 0x1p-53);
    const double kept = static_cast<double>(x.at<float>(i)) / 0.75;
    ASSERT_EQ(y.at<float>(i), u.at<float>(i) >= 0.25f ? static_cast<float>(kept) : 0) << i;
  }
}

TEST_F(Kernels, StepParametersOfBothKinds) {
  TestTensor p(b, BP_F64, {3}), g(b, BP_F64, {3}), m(b, BP_F64, {3}), v(b, BP_F64, {3}, 2);
  p.set<double>({1, 2, 3});
  g.set<double>({0.5, -1, 0});
  m.set<double>({9, 9, 9});
  const bp_tensor *ps[] = {&p}, *gs[] = {&g}, *ms[] = {&m}, *vs[] = {&v};
  const bp_sgd_step_args sgd{.params_count = 1,
                             .params = ps,
                             .grads_count = 1,
                             .grads = gs,
                             .momentum_buffers_count = 1,
                             .momentum_buffers = ms,
                             .lr_scalar = scalar(0.1),
                             .step_scalar = scalar(int64_t{1}),
                             .momentum = 0.9,
                             .weight_decay = 0.5};
  ASSERT_EQ(b.launch(BP_OP_SGD_STEP, sgd), BP_OK) << b.text;
  EXPECT_DOUBLE_EQ(m.at<double>(0), 1);
  EXPECT_DOUBLE_EQ(p.at<double>(0), 0.9);
  EXPECT_DOUBLE_EQ(p.at<double>(1), 2);

  m.set<double>({0, 0, 0});
  v.set<double>({0, 0, 0});
  const bp_adamw_step_args adamw{.params_count = 1,
                                 .params = ps,
                                 .grads_count = 1,
                                 .grads = gs,
                                 .exp_avg_count = 1,
                                 .exp_avg = ms,
                                 .exp_avg_sq_count = 1,
                                 .exp_avg_sq = vs,
                                 .lr_scalar = scalar(0.1),
                                 .step_scalar = scalar(int64_t{1}),
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 0,
                                 .weight_decay = 0};
  ASSERT_EQ(b.launch(BP_OP_ADAMW_STEP, adamw), BP_OK) << b.text;
  EXPECT_NEAR(p.at<double>(0), 0.8, 1e-12) << "the first step has the length lr";
  EXPECT_NEAR(p.at<double>(1), 2.1, 1e-12);
}

TEST_F(Kernels, RefuseConvolutionsWhoseSumsLoseTheirDigits) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t one[] = {1}, none[] = {0, 0};
  const auto reasons = [&](bp_dtype dtype, int64_t channels, int64_t window) {
    TestTensor x(b, dtype, {1, channels, window}), y(b, dtype, {1, 1, 1});
    TestTensor weight(b, dtype, {1, channels, window});
    TestTensor grad_y(b, dtype, {1, channels, 1}), turned(b, dtype, {channels, 1, window});
    TestTensor grad_x(b, dtype, {1, 1, window});
    const bp_convolution_args forward{.struct_size = sizeof(forward),
                                      .x = &x,
                                      .weight = &weight,
                                      .y = &y,
                                      .stride = one,
                                      .padding = none,
                                      .dilation = one,
                                      .groups = 1};
    const bp_convolution_backward_input_args backward{.struct_size = sizeof(backward),
                                                      .grad_y = &grad_y,
                                                      .weight = &turned,
                                                      .grad_x = &grad_x,
                                                      .stride = one,
                                                      .padding = none,
                                                      .dilation = one,
                                                      .groups = 1};
    const auto reason = [&](const char* name, const void* args) {
      const bp_kernel* const k = b.kernel(name);
      const char* const text = k->supports == nullptr ? nullptr : k->supports(k, b.device, 0, args);
      return std::string(text == nullptr ? "" : text);
    };
    return std::vector<std::string>{reason("convolution", &forward),
                                    reason("convolution_backward_input", &backward)};
  };
  for (const std::string& text : reasons(BP_F32, kMost / 4, 4)) EXPECT_EQ(text, "");
  for (const std::string& text : reasons(BP_F64, kMost / 4 + 1, 4)) EXPECT_EQ(text, "");
  for (const bp_dtype dtype : {BP_F32, BP_F16, BP_BF16}) {
    for (const std::string& text : reasons(dtype, kMost / 4 + 1, 4)) {
      EXPECT_EQ(text.find("a result is a sum of more than 2^20 products"), 0u) << text;
    }
  }
}

TEST_F(Kernels, RefuseConvolutionsWhoseProductsAreTooManyToCount) {
  TestTensor x(b, BP_F32, {1, 1, 1, 1}), y(b, BP_F32, {1, 1, 1, 1});
  TestTensor weight(b, BP_F32, {1, 1, 1, 1});
  weight.expand(2, int64_t{1} << 32);
  weight.expand(3, int64_t{1} << 32);
  const bp_kernel* const k = b.kernel("convolution");
  const bp_convolution_args args{
      .struct_size = sizeof(args), .x = &x, .weight = &weight, .y = &y, .groups = 1};
  const bp_reason reason = k->supports(k, b.device, 0, &args);
  ASSERT_NE(reason, nullptr) << "2^64 is 0 in 64 bits";
  EXPECT_EQ(std::string(reason).find("a result is a sum of more than 2^20 products"), 0u) << reason;
}

TEST_F(Kernels, RefuseSumsByIndexThatNeedMoreWorkspaceThan64BitsCount) {
  TestTensor x(b, BP_F32, {1, 1}), src(b, BP_F32, {1, 1}), y(b, BP_F32, {1, 1});
  TestTensor indices(b, BP_I64, {1, 1});
  x.expand(0, int64_t{1} << 31);
  x.expand(1, int64_t{1} << 31);
  y.expand(0, int64_t{1} << 31);
  y.expand(1, int64_t{1} << 31);
  src.expand(0, 1000);
  indices.expand(0, 1000);
  const bp_kernel* const k = b.kernel(BP_OP_SCATTER_REDUCE);
  const bp_scatter_reduce_args args{
      .struct_size = sizeof(args), .x = &x, .indices = &indices, .src = &src, .y = &y};
  uint64_t required = 0, preferred = 0;
  EXPECT_EQ(k->workspace_size(k, b.device, 0, &args, &required, &preferred), BP_INVALID_ARGUMENT);
  EXPECT_EQ(b.text,
            "a tensor has shape [2147483648, 2147483648], and 64 bits do not hold its number of "
            "bytes");
}

TEST_F(Kernels, RunOnAStreamAfterTheFrameIsGone) {
  bp_event* gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  bp_stream* const stream = b.make_stream();
  TestTensor x(b, BP_F32, {4}, 2), y(b, BP_F32, {4});
  x.set<float>({1, 2, 3, 4});
  ASSERT_EQ(b.streams->wait_event(b.streams->self, stream, gate), BP_OK);
  {
    const bp_tensor a = *&x, c = *&y;
    const auto args = std::make_unique<bp_mul_args>(
        bp_mul_args{.a = &a, .b_scalar = scalar(int64_t{3}), .y = &c});
    ASSERT_EQ(b.launch(BP_OP_MUL, *args, stream), BP_OK);
  }
  ASSERT_EQ(b.events->signal(b.events->self, gate, BP_OK), BP_OK);
  ASSERT_EQ(b.streams->synchronize(b.streams->self, stream, UINT64_MAX), BP_OK);
  EXPECT_EQ(y.get<float>(), (std::vector<float>{3, 6, 9, 12}));
}

}  // namespace
}  // namespace bp
