// Tests sdpa and its gradients against plain loops in f64: every dtype, grouped heads, masks,
// biases, layouts, extents that are not whole vectors or tiles, and equal bits for any number of
// threads.
#include <cmath>
#include <memory>
#include <optional>
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

struct Extents {
  int64_t batch, heads, key_heads, queries, keys, width, value_width;
  bool is_causal = false, has_mask = false, has_bias = false, is_strided = false;
  uint32_t causal() const { return is_causal ? BP_SDPA_CAUSAL_BOTTOM_RIGHT : BP_SDPA_CAUSAL_NONE; }
};

// The tensors of one call. Strided ones lie (batch, queries, heads, width), in steps of 2.
template <typename T>
struct Call {
  using Sum = Compute<T>;
  static constexpr bp_dtype kDtype = kDtypeOf<T>, kSumDtype = sizeof(Sum) == 8 ? BP_F64 : BP_F32;

  std::unique_ptr<TestTensor> make(bp_dtype dtype, int64_t heads, int64_t rows, int64_t cols) {
    if (!e.is_strided) {
      return std::make_unique<TestTensor>(b, dtype, std::vector{e.batch, heads, rows, cols});
    }
    auto t = std::make_unique<TestTensor>(b, dtype, std::vector{e.batch, rows, heads, cols}, 2);
    t->permute({0, 2, 1, 3});
    return t;
  }
  std::unique_ptr<TestTensor> random_tensor(int64_t heads, int64_t rows, int64_t cols) {
    auto t = make(kDtype, heads, rows, cols);
    std::normal_distribution<float> values;
    for (int64_t i = 0; i < t->size(); ++i)
      t->template at<T>(i) = kernels::narrow<T>(values(random));
    return t;
  }

  Call(TestBackend& its_backend, const Extents& extents) : b(its_backend), e(extents) {
    q = random_tensor(e.heads, e.queries, e.width);
    k = random_tensor(e.key_heads, e.keys, e.width);
    v = random_tensor(e.key_heads, e.keys, e.value_width);
    grad_y = random_tensor(e.heads, e.queries, e.value_width);
    y = make(kDtype, e.heads, e.queries, e.value_width);
    grad_q = make(kDtype, e.heads, e.queries, e.width);
    grad_k = make(kDtype, e.key_heads, e.keys, e.width);
    grad_v = make(kDtype, e.key_heads, e.keys, e.value_width);
    lse = std::make_unique<TestTensor>(b, kSumDtype, std::vector{e.batch, e.heads, e.queries}, 2);
    if (e.has_bias) bias = random_tensor(e.heads, e.queries, e.keys);
    if (!e.has_mask) return;
    mask = make(BP_BOOL, e.heads, e.queries, e.keys);
    for (int64_t i = 0; i < mask->size(); ++i) {
      const bool is_blind = i / e.keys % e.queries == 1;  // It sees no key.
      mask->template at<uint8_t>(i) = !is_blind && random() % 3 != 0;
    }
  }

  const bp_tensor* tensor(const std::unique_ptr<TestTensor>& t) { return t ? &*t : nullptr; }

  void launch() {
    ASSERT_EQ(b.launch(BP_OP_SDPA, bp_sdpa_args{.q = &*q,
                                                .k = &*k,
                                                .v = &*v,
                                                .mask = tensor(mask),
                                                .bias = tensor(bias),
                                                .y = &*y,
                                                .lse = &*lse,
                                                .scale = scale,
                                                .causal = e.causal(),
                                                .window_left = window_left}),
              BP_OK)
        << b.text;
    ASSERT_EQ(b.launch(BP_OP_SDPA_BACKWARD, bp_sdpa_backward_args{.grad_y = &*grad_y,
                                                                  .q = &*q,
                                                                  .k = &*k,
                                                                  .v = &*v,
                                                                  .mask = tensor(mask),
                                                                  .bias = tensor(bias),
                                                                  .y = &*y,
                                                                  .lse = &*lse,
                                                                  .grad_q = &*grad_q,
                                                                  .grad_k = &*grad_k,
                                                                  .grad_v = &*grad_v,
                                                                  .scale = scale,
                                                                  .causal = e.causal(),
                                                                  .window_left = window_left}),
              BP_OK)
        << b.text;
  }

  static double value(TestTensor& t, int64_t i) {
    return static_cast<double>(kernels::widen(t.at<T>(i)));
  }

  void check(double tolerance);
  void check_row(int64_t row, double tolerance, std::vector<double>& grad_ks,
                 std::vector<double>& grad_vs);

  TestBackend& b;
  Extents e;
  double scale = 0.3;
  int64_t window_left = 0;
  std::mt19937 random{20240501};
  std::unique_ptr<TestTensor> q, k, v, grad_y, y, grad_q, grad_k, grad_v, lse, mask, bias;
};

// Computes one query: its result, its gradient, and what it adds to the gradients of keys and
// values.
template <typename T>
void Call<T>::check_row(int64_t row, double tolerance, std::vector<double>& grad_ks,
                        std::vector<double>& grad_vs) {
  const int64_t head = row / e.queries % e.heads, group = e.heads / e.key_heads;
  const int64_t first = (row / e.queries / e.heads * e.key_heads + head / group) * e.keys;
  const auto dot = [](TestTensor& s, int64_t i, TestTensor& t, int64_t j, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < n; ++c) sum += value(s, i * n + c) * value(t, j * n + c);
    return sum;
  };
  std::vector<double> p(static_cast<size_t>(e.keys));
  double total = 0;
  for (int64_t j = 0; j < e.keys; ++j) {
    const int64_t diagonal = row % e.queries + e.keys - e.queries;
    const bool is_seen = (!e.is_causal || j <= diagonal) &&
                         (window_left == 0 || j > diagonal - window_left) &&
                         (!mask || mask->at<uint8_t>(row * e.keys + j) != 0);
    const double shift = bias ? value(*bias, row * e.keys + j) : 0;
    const double score = scale * dot(*q, row, *k, first + j, e.width) + shift;
    total += p[static_cast<size_t>(j)] = is_seen ? std::exp(score) : 0;
  }
  if (total == 0) {
    ASSERT_EQ(lse->at<Sum>(row), -std::numeric_limits<Sum>::infinity());
    total = 1;
  } else {
    ASSERT_NEAR(static_cast<double>(lse->at<Sum>(row)), std::log(total), 1e-4);
  }
  std::vector<double> result(static_cast<size_t>(e.value_width)),
      grad(static_cast<size_t>(e.width));
  double delta = 0;
  for (int64_t j = 0; j < e.keys; ++j) {
    p[static_cast<size_t>(j)] /= total;
    delta += p[static_cast<size_t>(j)] * dot(*grad_y, row, *v, first + j, e.value_width);
  }
  for (int64_t j = 0; j < e.keys; ++j) {
    const double weight = p[static_cast<size_t>(j)];
    const double grad_s =
        weight * (dot(*grad_y, row, *v, first + j, e.value_width) - delta) * scale;
    for (int64_t c = 0; c < e.value_width; ++c) {
      result[static_cast<size_t>(c)] += weight * value(*v, (first + j) * e.value_width + c);
      grad_vs[static_cast<size_t>((first + j) * e.value_width + c)] +=
          weight * value(*grad_y, row * e.value_width + c);
    }
    for (int64_t c = 0; c < e.width; ++c) {
      grad[static_cast<size_t>(c)] += grad_s * value(*k, (first + j) * e.width + c);
      grad_ks[static_cast<size_t>((first + j) * e.width + c)] +=
          grad_s * value(*q, row * e.width + c);
    }
  }
  for (int64_t c = 0; c < e.value_width; ++c) {
    ASSERT_NEAR(value(*y, row * e.value_width + c), result[static_cast<size_t>(c)], tolerance)
        << "y of row " << row;
  }
  for (int64_t c = 0; c < e.width; ++c) {
    ASSERT_NEAR(value(*grad_q, row * e.width + c), grad[static_cast<size_t>(c)], 4 * tolerance)
        << "grad_q of row " << row;
  }
}

template <typename T>
void Call<T>::check(double tolerance) {
  ASSERT_NO_FATAL_FAILURE(launch());
  std::vector<double> grad_ks(static_cast<size_t>(k->size())),
      grad_vs(static_cast<size_t>(v->size()));
  for (int64_t row = 0; row < e.batch * e.heads * e.queries; ++row) {
    ASSERT_NO_FATAL_FAILURE(check_row(row, tolerance, grad_ks, grad_vs));
  }
  const double many = 8 * tolerance;  // The sums over queries use rounded y.
  for (int64_t i = 0; i < k->size(); ++i) {
    ASSERT_NEAR(value(*grad_k, i), grad_ks[static_cast<size_t>(i)], many) << "grad_k at " << i;
  }
  for (int64_t i = 0; i < v->size(); ++i) {
    ASSERT_NEAR(value(*grad_v, i), grad_vs[static_cast<size_t>(i)], many) << "grad_v at " << i;
  }
}

const std::vector<Extents> kCalls = {
    {1, 1, 1, 1, 1, 1, 1},
    {2, 4, 2, 7, 9, 5, 3},
    {1, 2, 2, 67, 131, 16, 20, true},
    {2, 6, 2, 33, 65, 8, 8, true, true, true},
    {1, 3, 1, 130, 70, 7, 33, false, true, false},
    {1, 2, 1, 20, 150, 64, 64, true, false, true, true},
    {1, 1, 1, 300, 200, 9, 2, true, false, false},
    {1, 2, 2, 5, 0, 4, 4},
    {1, 2, 2, 0, 5, 4, 4},
    {1, 2, 1, 3, 5, 0, 4, false, true, false, true},
    // Few rows, and keys of several parts.
    {1, 4, 2, 1, 700, 64, 80},
    {2, 8, 1, 2, 530, 40, 24, true, true, true},
    {1, 6, 2, 3, 300, 33, 128, true, false, true, true},
    // Whole tiles, and tiles that end within one.
    {1, 2, 1, 96, 160, 64, 64, true},
    {1, 1, 1, 70, 90, 96, 40, false, true, false, true},
};

// Windows that begin and end within tiles, and beyond them.
TEST(AttentionOfF32, SkipsTilesOutsideOfAWindow) {
  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  for (const int64_t window : {1, 5, 64, 70, 1000}) {
    for (const bool is_causal : {false, true}) {
      for (const int64_t queries : {130, 300}) {
        Call<float> call(b, {1, 2, 1, queries, 200, 9, 5, is_causal});
        call.window_left = window;
        call.check(2e-5);
        ASSERT_FALSE(HasFatalFailure()) << "window " << window << ", queries " << queries;
      }
    }
  }
}

template <typename T>
class Attention : public testing::Test {};
using Elements = testing::Types<float, double, Float16, BFloat16>;
TYPED_TEST_SUITE(Attention, Elements);

TYPED_TEST(Attention, AgreesWithPlainLoops) {
  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  const bp_dtype dtype = kDtypeOf<TypeParam>;
  const double tolerance = dtype == BP_F64   ? 1e-12
                           : dtype == BP_F32 ? 2e-5
                           : dtype == BP_F16 ? 4e-3
                                             : 3e-2;
  for (const Extents& e : kCalls) {
    Call<TypeParam> call(b, e);
    call.check(tolerance);
    ASSERT_FALSE(this->HasFatalFailure())
        << "queries " << e.queries << ", keys " << e.keys << ", width " << e.width;
  }
}

TEST(AttentionOfF32, LeavesOutWhatIsNotSeen) {
  TestBackend b{BACKEND_PATH};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool has_mask : {false, true}) {
    Call<float> call(b, {1, 1, 1, 3, 3, 2, 2, !has_mask});
    call.v->at<float>(4) = nan;  // Only the last query sees this key.
    call.k->at<float>(5) = infinity;
    if (has_mask) {
      call.mask = call.make(BP_BOOL, 1, 3, 3);
      call.mask->set<uint8_t>({1, 0, 0, 1, 1, 0, 1, 1, 1});
    }
    call.launch();
    EXPECT_FLOAT_EQ(call.y->at<float>(0), call.v->at<float>(0));
    EXPECT_TRUE(std::isfinite(call.y->at<float>(2)));
    EXPECT_TRUE(std::isnan(call.y->at<float>(4)));
  }
}

TEST(AttentionOfBf16, LeavesOutValuesThatAreNotSeen) {
  TestBackend b{BACKEND_PATH};
  constexpr int64_t kCount = 40, kWidth = 32;
  Call<BFloat16> call(b, {1, 1, 1, kCount, kCount, kWidth, kWidth, true});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  call.v->at<BFloat16>((kCount - 1) * kWidth) = kernels::narrow<BFloat16>(nan);
  call.launch();
  for (int64_t row = 0; row < kCount; ++row) {
    EXPECT_EQ(std::isnan(Call<BFloat16>::value(*call.y, row * kWidth)), row == kCount - 1) << row;
    EXPECT_TRUE(std::isfinite(Call<BFloat16>::value(*call.y, row * kWidth + 1))) << row;
  }
}

template <typename T>
std::vector<double> results_of(const Extents& extents, const char* threads) {
  TestBackend b{BACKEND_PATH, {{"threads", threads}}};
  Call<T> call(b, extents);
  call.launch();
  std::vector<double> results;
  for (auto* t : {call.y.get(), call.grad_q.get(), call.grad_k.get(), call.grad_v.get()}) {
    for (int64_t i = 0; i < t->size(); ++i) results.push_back(Call<T>::value(*t, i));
  }
  return results;
}

TYPED_TEST(Attention, GivesEqualBitsForEveryNumberOfThreads) {
  for (const Extents& e :
       {Extents{1, 2, 1, 530, 300, 24, 24, true}, Extents{1, 4, 2, 2, 3000, 32, 32, true}}) {
    const std::vector<double> expected = results_of<TypeParam>(e, "1");
    EXPECT_EQ(results_of<TypeParam>(e, "2"), expected) << "queries " << e.queries;
    EXPECT_EQ(results_of<TypeParam>(e, "5"), expected) << "queries " << e.queries;
  }
}

}  // namespace
}  // namespace bp
