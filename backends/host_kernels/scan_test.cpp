// Tests cumsum and cumprod of lines that are cut into parts, on several numbers of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

class Scan : public testing::Test {
 protected:
  // Scans x along axis 0 on each number of threads, and returns the result, which must be the same.
  template <typename Args>
  std::vector<double> scan(uint32_t op, TestTensor& x, const std::vector<int64_t>& shape,
                           bool is_exclusive, bool is_reverse) {
    std::vector<double> first;
    for (const char* threads : {"1", "2", "3", "7"}) {
      b.devices->set_option(b.devices->self, b.device, "threads", threads);
      TestTensor y(b, BP_F64, shape);
      const Args args{
          .x = &x, .y = &y, .axis = 0, .is_exclusive = is_exclusive, .is_reverse = is_reverse};
      EXPECT_EQ(b.launch(op, args), BP_OK);
      std::vector<double> found = y.get<double>();
      if (first.empty()) {
        first = std::move(found);
      } else {
        EXPECT_EQ(found, first) << threads << " threads";
      }
    }
    return first;
  }

  TestBackend b{BACKEND_PATH};
  std::mt19937_64 random{29};
};

TEST_F(Scan, GivesTheSameSumsOnEveryNumberOfThreads) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{700'001}, {9'000, 33}}) {
    TestTensor x(b, BP_F64, shape);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (int64_t i = 0; i < x.size(); ++i) x.at<double>(i) = uniform(random);
    const int64_t rows = shape[0], columns = x.size() / rows;
    const auto forward = scan<bp_cumsum_args>(BP_OP_CUMSUM, x, shape, false, false);
    const auto backward = scan<bp_cumsum_args>(BP_OP_CUMSUM, x, shape, true, true);
    for (int64_t column = 0; column < columns; column += 16) {
      double total = 0, size = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const auto at = static_cast<size_t>(row * columns + column);
        total += x.at<double>(static_cast<int64_t>(at));
        size += std::abs(x.at<double>(static_cast<int64_t>(at)));
        ASSERT_NEAR(forward[at], total, 1e-14 * size) << "row " << row;
      }
      const auto first = static_cast<size_t>(column);
      ASSERT_NEAR(backward[first] + x.at<double>(column), total, 1e-14 * size);
      ASSERT_EQ(backward[static_cast<size_t>((rows - 1) * columns + column)], 0);
    }
  }
}

TEST_F(Scan, GivesTheSameProductsOnEveryNumberOfThreads) {
  const std::vector<int64_t> shape = {300'000};
  TestTensor x(b, BP_F32, shape);
  for (int64_t i = 0; i < x.size(); ++i) x.at<float>(i) = i % 2 == 0 ? 0.5f : -2.0f;
  const auto y = scan<bp_cumprod_args>(BP_OP_CUMPROD, x, shape, false, false);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double sign = (i + 1) / 2 % 2 == 0 ? 1 : -1;
    ASSERT_EQ(y[static_cast<size_t>(i)], sign * (i % 2 == 0 ? 0.5 : 1)) << i;
  }
}

}  // namespace
}  // namespace bp
