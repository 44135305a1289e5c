// Tests the Fourier transforms of lengths that take each way, on several numbers of threads, and of
// numbers that are nearly too large.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

constexpr uint32_t kBackward = BP_FFT_NORMALIZATION_BACKWARD;

class Spectral : public testing::Test {
 protected:
  void fill(TestTensor& x) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (int64_t i = 0; i < x.size(); ++i) x.at<double>(i) = uniform(random);
  }

  template <typename Args>
  void transform(uint32_t op, TestTensor& x, TestTensor& y, int32_t axis) {
    Args args{.x = &x, .y = &y, .axis = axis, .normalization = kBackward};
    if constexpr (std::is_same_v<Args, bp_irfft_args>) {
      args.length = y.shape()[static_cast<size_t>(axis)];
    }
    ASSERT_EQ(b.launch(op, args), BP_OK) << b.text;
  }

  void set_threads(const char* threads) {
    b.devices->set_option(b.devices->self, b.device, "threads", threads);
  }

  TestBackend b{BACKEND_PATH};
  std::mt19937_64 random{31};
};

// Small factors, a prime factor that has a pass, one that has none, and twice such a one.
constexpr int64_t kLengths[] = {1, 2, 3, 8, 13, 60, 97, 101, 202, 1009, 4096, 6000, 65'536};

TEST_F(Spectral, LinesAreThoseOfTheDefinition) {
  for (const int64_t n : kLengths) {
    const std::vector<int64_t> shape = {3, n, 2};
    TestTensor x(b, BP_F64, shape), y(b, BP_F64, shape);
    fill(x);
    transform<bp_fft_args>(BP_OP_FFT, x, y, 1);
    for (const int64_t k : {int64_t{0}, n / 3, n / 2, n - 1}) {
      long double re = 0, im = 0, size = 0;
      for (int64_t j = 0; j < n; ++j) {
        const long double turns = static_cast<long double>(j * k % n) / static_cast<long double>(n);
        const long double angle = -2 * 3.141592653589793238462643383279502884L * turns;
        const long double a = x.at<double>(2 * (n + j)), c = x.at<double>(2 * (n + j) + 1);
        re += a * std::cos(angle) - c * std::sin(angle);
        im += a * std::sin(angle) + c * std::cos(angle);
        size += std::fabs(a) + std::fabs(c);
      }
      const auto most = static_cast<double>(1e-15L * size);
      ASSERT_NEAR(y.at<double>(2 * (n + k)), static_cast<double>(re), most) << n << " " << k;
      ASSERT_NEAR(y.at<double>(2 * (n + k) + 1), static_cast<double>(im), most) << n << " " << k;
    }
  }
}

TEST_F(Spectral, InversesGiveTheLinesBack) {
  for (const int64_t n : kLengths) {
    for (const bool is_last : {true, false}) {
      const std::vector<int64_t> shape =
          is_last ? std::vector<int64_t>{5, n, 2} : std::vector<int64_t>{n, 5, 2};
      const int32_t axis = is_last ? 1 : 0;
      TestTensor x(b, BP_F64, shape), bins(b, BP_F64, shape), again(b, BP_F64, shape);
      fill(x);
      transform<bp_fft_args>(BP_OP_FFT, x, bins, axis);
      transform<bp_ifft_args>(BP_OP_IFFT, bins, again, axis);
      for (int64_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(again.at<double>(i), x.at<double>(i), 1e-14) << n << " " << i;
      }
    }
  }
}

TEST_F(Spectral, RealLinesComeBackFromHalfOfTheBins) {
  for (const int64_t n : kLengths) {
    TestTensor x(b, BP_F64, {5, n}), bins(b, BP_F64, {5, n / 2 + 1, 2}), again(b, BP_F64, {5, n});
    fill(x);
    transform<bp_rfft_args>(BP_OP_RFFT, x, bins, 1);
    EXPECT_EQ(bins.at<double>(1), 0);
    transform<bp_irfft_args>(BP_OP_IRFFT, bins, again, 1);
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(again.at<double>(i), x.at<double>(i), 1e-14) << n << " " << i;
    }
  }
}

TEST_F(Spectral, EveryNumberOfThreadsGivesTheSameBits) {
  for (const int64_t n : {int64_t{60}, int64_t{1009}, int64_t{4096}}) {
    const std::vector<int64_t> shape = {37, n, 2};
    TestTensor x(b, BP_F64, shape);
    fill(x);
    std::vector<double> first;
    for (const char* threads : {"1", "2", "3", "7"}) {
      set_threads(threads);
      TestTensor y(b, BP_F64, shape);
      transform<bp_fft_args>(BP_OP_FFT, x, y, 1);
      std::vector<double> found = y.get<double>();
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << threads << " threads";
    }
  }
}

// The parts of the whole line add up to nearly the largest number, also in a convolution.
TEST_F(Spectral, SumsOnTheWayDoNotOverflow) {
  for (const int64_t n : {int64_t{64}, int64_t{97}, int64_t{101}, int64_t{1009}}) {
    TestTensor x(b, BP_F64, {n, 2}), y(b, BP_F64, {n, 2});
    const double each = std::numeric_limits<double>::max() / static_cast<double>(2 * n + 2);
    for (int64_t i = 0; i < x.size(); ++i) x.at<double>(i) = each;
    transform<bp_fft_args>(BP_OP_FFT, x, y, 0);
    EXPECT_NEAR(y.at<double>(0) / each, static_cast<double>(n), 1e-12 * static_cast<double>(n));
    for (int64_t i = 2; i < y.size(); ++i) {
      ASSERT_NEAR(y.at<double>(i) / each, 0, 1e-13 * static_cast<double>(n)) << n << " " << i;
    }
  }
}

}  // namespace
}  // namespace bp
