// Tests max_pool, and avg_pool and its gradient, against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
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
  std::vector<int64_t> x, kernel, stride, padding;
};

const Case kCases[] = {
    {{2, 3, 17, 19}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
    {{1, 2, 9, 40}, {3, 3}, {1, 1}, {1, 1, 1, 1}},
    {{2, 2, 8, 21}, {3, 5}, {2, 3}, {0, 2, 2, 1}},
    {{3, 4, 7, 7}, {7, 7}, {1, 1}, {0, 0, 0, 0}},
    {{1, 1, 5200}, {3}, {2}, {1, 1}},
    {{2, 1, 40, 30}, {20, 1}, {1, 4}, {3, 0, 3, 0}},
    {{1, 2, 3100}, {2500}, {7}, {9, 0}},
    {{1, 1, 4, 700}, {2, 3}, {1, 1}, {0, 2, 0, 2}},
    {{1, 2, 5, 6, 7}, {2, 3, 2}, {1, 2, 2}, {1, 0, 1, 0, 1, 1}},
    {{1, 1, 2}, {1}, {1}, {2, 2}},
};

class Pool : public testing::Test {
 protected:
  static std::vector<int64_t> output_shape(const Case& c) {
    std::vector<int64_t> shape = {c.x[0], c.x[1]};
    const size_t axes = c.kernel.size();
    for (size_t i = 0; i < axes; ++i) {
      const int64_t padded = c.x[i + 2] + c.padding[i] + c.padding[axes + i];
      shape.push_back((padded - c.kernel[i]) / c.stride[i] + 1);
    }
    return shape;
  }

  // Calls body(input element, output element, size of the window) for every input element of every
  // window.
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
      const std::vector<int64_t> shape = output_shape(c);
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

  // Fills a tensor with numbers, of which many are equal and a few are NaN.
  template <typename T>
  void fill_with_ties(TestTensor& x) {
    for (int64_t i = 0; i < x.size(); ++i) {
      const auto kind = random() % 64;
      const float value = kind == 0   ? std::numeric_limits<float>::quiet_NaN()
                          : kind == 1 ? -std::numeric_limits<float>::infinity()
                                      : static_cast<float>(random() % 5);
      x.at<T>(i) = narrow<T>(value);
    }
  }

  // Returns the inputs that the outputs choose, as indices in their planes; -1 means none.
  template <typename T>
  static std::vector<int64_t> choices(const Case& c, TestTensor& x, const TestTensor& y) {
    std::vector<int64_t> chosen(static_cast<size_t>(y.size()), -1);
    for_each_pair(c, output_shape(c), false, [&](int64_t in, int64_t out, int64_t) {
      int64_t& best = chosen[static_cast<size_t>(out)];
      const auto value = widen(x.at<T>(in));
      const bool is_nan = best >= 0 && std::isnan(widen(x.at<T>(best)));
      const bool is_larger = best < 0 || std::isnan(value) || value > widen(x.at<T>(best));
      if (!is_nan && is_larger) best = in;
    });
    return chosen;
  }

  template <typename T>
  void expect_maxima(bp_dtype dtype, int64_t gap) {
    for (const Case& c : kCases) {
      const std::vector<int64_t> shape = output_shape(c), dilation(c.kernel.size(), 1);
      TestTensor x(b, dtype, c.x, gap), y(b, dtype, shape, gap), alone(b, dtype, shape, gap),
          indices(b, BP_I64, shape, gap);
      fill_with_ties<T>(x);
      bp_max_pool_args args{.x = &x,
                            .y = &y,
                            .indices = &indices,
                            .kernel_size_count = c.kernel.size(),
                            .kernel_size = c.kernel.data(),
                            .stride_count = c.stride.size(),
                            .stride = c.stride.data(),
                            .padding_count = c.padding.size(),
                            .padding = c.padding.data(),
                            .dilation_count = dilation.size(),
                            .dilation = dilation.data()};
      ASSERT_EQ(b.launch(BP_OP_MAX_POOL, args), BP_OK) << b.text;
      args.y = &alone;
      args.indices = nullptr;
      ASSERT_EQ(b.launch(BP_OP_MAX_POOL, args), BP_OK) << b.text;
      const std::vector<int64_t> chosen = choices<T>(c, x, y);
      const int64_t plane = x.size() / c.x[0] / c.x[1];
      for (int64_t i = 0; i < y.size(); ++i) {
        const int64_t in = chosen[static_cast<size_t>(i)];
        ASSERT_EQ(indices.at<int64_t>(i), in < 0 ? -1 : in % plane) << i;
        const auto value = in < 0 ? -HUGE_VAL : static_cast<double>(widen(x.at<T>(in)));
        for (const T element : {y.at<T>(i), alone.at<T>(i)}) {
          const auto got = static_cast<double>(widen(element));
          ASSERT_TRUE(got == value || (std::isnan(got) && std::isnan(value))) << got << " at " << i;
        }
      }
    }
  }

  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  std::mt19937 random{23};
};

TEST_F(Pool, TakesMeansAndSpreadsThemInEveryDtypeAndLayout) {
  for (const int64_t gap : {1, 2}) {
    expect_means<float>(BP_F32, 1e-6, gap);
    expect_means<double>(BP_F64, 1e-15, gap);
    expect_means<Float16>(BP_F16, 0x1p-11, gap);
    expect_means<BFloat16>(BP_BF16, 0x1p-8, gap);
  }
}

TEST_F(Pool, ChoosesTheFirstOfTheLargestInEveryDtypeAndLayout) {
  for (const int64_t gap : {1, 2}) {
    expect_maxima<float>(BP_F32, gap);
    expect_maxima<double>(BP_F64, gap);
    expect_maxima<Float16>(BP_F16, gap);
    expect_maxima<BFloat16>(BP_BF16, gap);
  }
}

}  // namespace
}  // namespace bp
