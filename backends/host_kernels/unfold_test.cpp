// Tests unfold and fold against plain loops: every dtype, strides, dilations, padding that differs
// by side, layouts, and columns that are written past the caches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Float16;
using kernels::narrow;
using kernels::widen;

struct Case {
  std::vector<int64_t> image, kernel, stride, padding, dilation;
};

const Case kCases[] = {
    {{2, 3, 7, 9}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {{1, 2, 8, 41}, {2, 5}, {3, 2}, {0, 2, 1, 0}, {1, 2}},
    {{2, 1, 5, 70}, {1, 3}, {2, 3}, {2, 4, 0, 1}, {1, 3}},
    {{1, 1, 1, 1}, {2, 2}, {1, 1}, {3, 3, 2, 2}, {2, 1}},
    {{1, 2, 40, 40}, {33, 9}, {1, 5}, {0, 0, 0, 0}, {1, 1}},
};
const Case kLarge = {{2, 32, 120, 116}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};

class Unfold : public testing::Test {
 protected:
  static int64_t windows(const Case& c, size_t axis) {
    const int64_t padded = c.image[2 + axis] + c.padding[axis] + c.padding[2 + axis];
    return (padded - c.dilation[axis] * (c.kernel[axis] - 1) - 1) / c.stride[axis] + 1;
  }
  static std::vector<int64_t> columns_shape(const Case& c) {
    return {c.image[0], c.image[1] * c.kernel[0] * c.kernel[1], windows(c, 0) * windows(c, 1)};
  }

  // Calls body(element of the columns, element of the image or -1) for every element of the
  // columns.
  template <typename Body>
  static void for_each_pair(const Case& c, const Body& body) {
    const int64_t rows = windows(c, 0), across = windows(c, 1), taps = c.kernel[0] * c.kernel[1];
    const int64_t planes = c.image[0] * c.image[1];
    for (int64_t i = 0; i < planes * taps * rows * across; ++i) {
      const int64_t l = i % across, k = i / across % rows, tap = i / across / rows % taps;
      const int64_t row = k * c.stride[0] + tap / c.kernel[1] * c.dilation[0] - c.padding[0];
      const int64_t column = l * c.stride[1] + tap % c.kernel[1] * c.dilation[1] - c.padding[1];
      const bool is_inside = row >= 0 && row < c.image[2] && column >= 0 && column < c.image[3];
      const int64_t plane = i / across / rows / taps;
      body(i, is_inside ? (plane * c.image[2] + row) * c.image[3] + column : -1);
    }
  }

  template <typename T>
  void fill(TestTensor& t) {
    std::uniform_real_distribution<float> values(-1, 1);
    for (int64_t i = 0; i < t.size(); ++i) t.at<T>(i) = narrow<T>(values(random));
  }

  template <typename Args>
  static Args with_windows(const Case& c, Args args) {
    args.kernel_size_count = args.stride_count = args.dilation_count = 2;
    args.padding_count = 4;
    args.kernel_size = c.kernel.data();
    args.stride = c.stride.data();
    args.padding = c.padding.data();
    args.dilation = c.dilation.data();
    return args;
  }

  template <typename T>
  void expect_unfolded(bp_dtype dtype, const Case& c, int64_t gap) {
    TestTensor x(b, dtype, c.image, gap), y(b, dtype, columns_shape(c), gap);
    fill<T>(x);
    ASSERT_EQ(b.launch(BP_OP_UNFOLD, with_windows(c, bp_unfold_args{.x = &x, .y = &y})), BP_OK)
        << b.text;
    for_each_pair(c, [&](int64_t column, int64_t place) {
      ASSERT_EQ(widen(y.at<T>(column)), place < 0 ? 0 : widen(x.at<T>(place))) << column;
    });
  }

  template <typename T>
  void expect_folded(bp_dtype dtype, const Case& c, double bound, int64_t gap) {
    TestTensor x(b, dtype, columns_shape(c), gap), y(b, dtype, c.image, gap);
    fill<T>(x);
    const bp_fold_args args{
        .x = &x, .y = &y, .output_size_count = 2, .output_size = c.image.data() + 2};
    ASSERT_EQ(b.launch(BP_OP_FOLD, with_windows(c, args)), BP_OK) << b.text;
    std::vector<double> sums(static_cast<size_t>(y.size()));
    for_each_pair(c, [&](int64_t column, int64_t place) {
      if (place >= 0)
        sums[static_cast<size_t>(place)] += static_cast<double>(widen(x.at<T>(column)));
    });
    for (int64_t i = 0; i < y.size(); ++i) {
      const double sum = sums[static_cast<size_t>(i)];
      ASSERT_NEAR(widen(y.at<T>(i)), sum, bound * std::max(1.0, std::abs(sum))) << i;
    }
  }

  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  std::mt19937 random{29};
};

TEST_F(Unfold, CopiesWindowsInEveryDtypeAndLayout) {
  for (const Case& c : kCases) {
    for (const int64_t gap : {1, 2}) {
      expect_unfolded<float>(BP_F32, c, gap);
      expect_unfolded<double>(BP_F64, c, gap);
      expect_unfolded<Float16>(BP_F16, c, gap);
      expect_unfolded<BFloat16>(BP_BF16, c, gap);
    }
  }
}

TEST_F(Unfold, WritesMuchPastTheCaches) { expect_unfolded<float>(BP_F32, kLarge, 1); }

TEST_F(Unfold, FoldsIntoSumsInEveryDtypeAndLayout) {
  for (const Case& c : kCases) {
    for (const int64_t gap : {1, 2}) {
      expect_folded<float>(BP_F32, c, 1e-6, gap);
      expect_folded<double>(BP_F64, c, 1e-14, gap);
      expect_folded<Float16>(BP_F16, c, 0x1p-11, gap);
      expect_folded<BFloat16>(BP_BF16, c, 0x1p-8, gap);
    }
  }
}

}  // namespace
}  // namespace bp
