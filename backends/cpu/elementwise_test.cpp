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

}  // namespace
}  // namespace bp
