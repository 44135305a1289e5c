// avg_pool and its gradient against plain loops.
#include <gtest/gtest.h>

#include <random>

#include "backends/common/test_backend.hpp"
#include "backends/cpu/kernels/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Float16;
using kernels::narrow;
using kernels::widen;

struct Case {
  std::vector<int64_t> x, kernel, stride, padding;
};

const Case kCases[] = {
    {{2, 3, 17, 19}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
    {{1, 2, 9, 40}, {3, 3}, {1, 1}, {1, 1, 1, 1}},
    {{2, 2, 8, 21}, {3, 5}, {2, 3}, {0, 2, 2, 1}},
    {{3, 4, 7, 7}, {7, 7}, {1, 1}, {0, 0, 0, 0}},
    {{1, 1, 1200}, {3}, {2}, {1, 1}},
    {{1, 2, 5, 6, 7}, {2, 3, 2}, {1, 2, 2}, {1, 0, 1, 0, 1, 1}},
    {{1, 1, 2}, {1}, {1}, {2, 2}},
};

class AvgPool : public testing::Test {
 protected:
  // Calls body(input element, output element, size of the window) for all that belong together.
  template <typename Body>
  static void for_each_pair(const Case& c, const std::vector<int64_t>& y, bool counts_padding,
                            const Body& body) {
    const size_t axes = c.kernel.size();
    const int64_t outputs = product(y);
    for (int64_t o = 0; o < outputs; ++o) {
      std::vector<int64_t> inputs = {0};
      int64_t rest = o, scale = 1, window = 1;
      for (size_t axis = axes; axis-- > 0;) {
        const int64_t extent = c.x[axis + 2], at = rest % y[axis + 2];
        rest /= y[axis + 2];
        std::vector<int64_t> next;
        int64_t taps = 0;
        for (int64_t t = 0; t < c.kernel[axis]; ++t) {
          const int64_t place = at * c.stride[axis] - c.padding[axis] + t;
          if (place < 0 || place >= extent) continue;
          ++taps;
          for (const int64_t input : inputs) next.push_back(input + place * scale);
        }
        window *= counts_padding ? c.kernel[axis] : taps;
        inputs = next;
        scale *= extent;
      }
      for (const int64_t input : inputs) body(rest * scale + input, o, window);
    }
  }

  static int64_t product(const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }

  template <typename T>
  void expect_means(bp_dtype dtype, double bound, int64_t gap) {
    for (const Case& c : kCases) {
      std::vector<int64_t> shape = {c.x[0], c.x[1]};
      const size_t axes = c.kernel.size();
      for (size_t i = 0; i < axes; ++i) {
        const int64_t padded = c.x[i + 2] + c.padding[i] + c.padding[axes + i];
        shape.push_back((padded - c.kernel[i]) / c.stride[i] + 1);
      }
      for (const int32_t counts_padding : {0, 1})
        expect_case<T>(dtype, c, shape, counts_padding, bound, gap);
    }
  }

  template <typename T>
  void expect_case(bp_dtype dtype, const Case& c, const std::vector<int64_t>& shape,
                   int32_t counts_padding, double bound, int64_t gap) {
    TestTensor x(b, dtype, c.x, gap), y(b, dtype, shape, gap), grad(b, dtype, c.x, gap);
    std::uniform_real_distribution<float> values(-1, 1);
    for (int64_t i = 0; i < x.size(); ++i) x.at<T>(i) = narrow<T>(values(random));
    const bp_avg_pool_args args{.x = &x,
                                .y = &y,
                                .kernel_size_count = c.kernel.size(),
                                .kernel_size = c.kernel.data(),
                                .stride_count = c.stride.size(),
                                .stride = c.stride.data(),
                                .padding_count = c.padding.size(),
                                .padding = c.padding.data(),
                                .counts_padding = counts_padding};
    ASSERT_EQ(b.launch(BP_OP_AVG_POOL, args), BP_OK) << b.text;
    std::vector<double> means(static_cast<size_t>(y.size()));
    for_each_pair(c, shape, counts_padding != 0, [&](int64_t in, int64_t out, int64_t window) {
      means[static_cast<size_t>(out)] +=
          static_cast<double>(widen(x.at<T>(in))) / static_cast<double>(window);
    });
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(widen(y.at<T>(i)), means[static_cast<size_t>(i)], bound) << i;
    }
    const bp_avg_pool_backward_args backward{.grad_y = &y,
                                             .grad_x = &grad,
                                             .input_size_count = c.kernel.size(),
                                             .input_size = c.x.data() + 2,
                                             .kernel_size_count = c.kernel.size(),
                                             .kernel_size = c.kernel.data(),
                                             .stride_count = c.stride.size(),
                                             .stride = c.stride.data(),
                                             .padding_count = c.padding.size(),
                                             .padding = c.padding.data(),
                                             .counts_padding = counts_padding};
    ASSERT_EQ(b.launch(BP_OP_AVG_POOL_BACKWARD, backward), BP_OK) << b.text;
    std::vector<double> shares(static_cast<size_t>(x.size()));
    for_each_pair(c, shape, counts_padding != 0, [&](int64_t in, int64_t out, int64_t window) {
      shares[static_cast<size_t>(in)] +=
          static_cast<double>(widen(y.at<T>(out))) / static_cast<double>(window);
    });
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(widen(grad.at<T>(i)), shares[static_cast<size_t>(i)], bound) << i;
    }
  }

  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  std::mt19937 random{23};
};

TEST_F(AvgPool, TakesMeansAndSpreadsThemInEveryDtypeAndLayout) {
  for (const int64_t gap : {1, 2}) {
    expect_means<float>(BP_F32, 1e-6, gap);
    expect_means<double>(BP_F64, 1e-15, gap);
    expect_means<Float16>(BP_F16, 0x1p-11, gap);
    expect_means<BFloat16>(BP_BF16, 0x1p-8, gap);
  }
}

}  // namespace
}  // namespace bp
