// Tests sort and topk against the sorts of the standard library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "backends/shell/test_backend.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp {
namespace {

using kernels::BFloat16;
using kernels::Float16;
using kernels::kIsNarrow;
using kernels::narrow;
using kernels::widen;

// Compares elements. NaN is larger than every number, and equal to itself.
bool is_less(auto a, auto b) {
  if constexpr (std::is_floating_point_v<decltype(a)>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  }
  return a < b;
}

class Sort : public testing::Test {
 protected:
  // Fills a tensor with many equal values, both zeros, and, for floats, NaN and infinities.
  template <typename T>
  T value() {
    const auto choice = random() % 4;
    if constexpr (std::is_integral_v<T>) {
      if (choice == 0) return static_cast<T>(random() % 7) - 3;
      return static_cast<T>(random() * 0x9e3779b97f4a7c15u);
    } else {
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      constexpr float kSpecial[] = {
          0.0f, -0.0f, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 1, -1};
      if (choice == 0) return narrow<T>(kSpecial[random() % std::size(kSpecial)]);
      return narrow<T>(std::normal_distribution<float>()(random));
    }
  }

  // Returns the first k places of a line in sorted order.
  template <typename T>
  std::vector<int64_t> order_of(TestTensor& x, int64_t line, int64_t n, bool is_descending) {
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
      const auto left = widen(x.at<T>(line * n + i)), right = widen(x.at<T>(line * n + j));
      return is_descending ? is_less(right, left) : is_less(left, right);
    });
    return order;
  }

  template <typename T>
  void expect_order(bp_dtype dtype, TestTensor& x, int64_t n, int64_t k, bool is_topk,
                    bool is_descending, bool has_indices, int64_t gap) {
    const int64_t lines = x.size() / n;
    // The tensors have the shape (k, lines) before they are permuted, so that results lie across x.
    TestTensor y(b, dtype, {k, lines}, gap), indices(b, BP_I64, {k, lines}, gap);
    y.permute({1, 0});
    indices.permute({1, 0});
    const bp_tensor* const places = has_indices ? &indices : nullptr;
    const bp_topk_args topk{
        .x = &x, .y = &y, .indices = places, .k = k, .axis = 1, .is_largest = is_descending};
    const bp_sort_args sort{
        .x = &x, .y = &y, .indices = places, .axis = 1, .is_descending = is_descending};
    ASSERT_EQ(is_topk ? b.launch(BP_OP_TOPK, topk) : b.launch(BP_OP_SORT, sort), BP_OK) << b.text;
    for (int64_t line = 0; line < lines; ++line) {
      const std::vector<int64_t> order = order_of<T>(x, line, n, is_descending);
      for (int64_t i = 0; i < k; ++i) {
        const T expected = x.at<T>(line * n + order[static_cast<size_t>(i)]);
        ASSERT_EQ(std::memcmp(&y.at<T>(line * k + i), &expected, sizeof(T)), 0)
            << "line " << line << ", place " << i << " of " << n << ", k " << k;
        if (!has_indices) continue;
        ASSERT_EQ(indices.at<int64_t>(line * k + i), order[static_cast<size_t>(i)])
            << "line " << line << ", place " << i << " of " << n << ", k " << k;
      }
    }
  }

  template <typename T>
  void expect_sorted(bp_dtype dtype) {
    for (const int64_t n : {1, 2, 17, 64, 65, 257, 5000}) {
      for (const int64_t gap : {1, 3}) {
        TestTensor x(b, dtype, {3, n}, gap);
        for (int64_t i = 0; i < x.size(); ++i) x.at<T>(i) = value<T>();
        for (const bool is_descending : {false, true}) {
          expect_order<T>(dtype, x, n, n, false, is_descending, gap == 1, gap);
          for (const int64_t k : {int64_t{0}, int64_t{1}, n / 150, n / 50, n / 20, n / 3, n}) {
            expect_order<T>(dtype, x, n, k, true, is_descending, gap == 1, gap);
          }
        }
      }
    }
  }

  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  std::mt19937_64 random{31};
};

TEST_F(Sort, OrdersEveryDtypeStably) {
  expect_sorted<float>(BP_F32);
  expect_sorted<double>(BP_F64);
  expect_sorted<Float16>(BP_F16);
  expect_sorted<BFloat16>(BP_BF16);
  expect_sorted<int32_t>(BP_I32);
  expect_sorted<int64_t>(BP_I64);
}

// First each block of the line is better than all earlier blocks, and then no block is better.
TEST_F(Sort, SelectsFromLinesThatAreInOrder) {
  TestTensor x(b, BP_I32, {2, 20000});
  for (int64_t i = 0; i < 20000; ++i) {
    x.at<int32_t>(i) = static_cast<int32_t>(i);
    x.at<int32_t>(20000 + i) = static_cast<int32_t>(i / 5000);
  }
  for (const bool is_descending : {false, true}) {
    for (const int64_t k : {1, 7, 900}) {
      expect_order<int32_t>(BP_I32, x, 20000, k, true, is_descending, true, 1);
    }
  }
}

// All elements are equal, and in one case all are NaN, so that no element can be better.
TEST_F(Sort, SelectsFromLinesOfOneValue) {
  TestTensor x(b, BP_F32, {2, 3000});
  for (int64_t i = 0; i < 3000; ++i) {
    x.at<float>(i) = std::numeric_limits<float>::quiet_NaN();
    x.at<float>(3000 + i) = 2;
  }
  for (const bool is_descending : {false, true}) {
    for (const int64_t k : {1, 32, 33, 128, 129}) {
      expect_order<float>(BP_F32, x, 3000, k, true, is_descending, true, 1);
    }
  }
}

}  // namespace
}  // namespace bp
