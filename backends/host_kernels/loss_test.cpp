// Tests what the suite does not show of losses and of the norms of channels: equal bits for any
// number of threads, and results so large that they are written past the caches.
#include <cmath>
#include <memory>
#include <random>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

void fill(TestTensor& t, float shift = 0) {
  std::mt19937 random{static_cast<unsigned>(t.size())};
  std::normal_distribution<float> values(shift, 1);
  for (int64_t i = 0; i < t.size(); ++i) t.at<float>(i) = values(random);
}

// Appends the elements of t.
void append(std::vector<float>& bits, TestTensor& t) {
  for (const float value : t.get<float>()) bits.push_back(value);
}

std::vector<float> losses_with(const char* threads) {
  TestBackend b{BACKEND_PATH, {{"threads", threads}}};
  std::vector<float> bits;
  TestTensor x(b, BP_F32, {100003}), target(b, BP_F32, {100003}), weight(b, BP_F32, {100003});
  TestTensor y(b, BP_F32, {});
  for (TestTensor* t : {std::addressof(x), std::addressof(target), std::addressof(weight)}) {
    fill(*t, 0.5f);
  }
  EXPECT_EQ(
      b.launch(BP_OP_MSE_LOSS,
               bp_mse_loss_args{
                   .x = &x, .target = &target, .y = &y, .reduction = BP_MSE_LOSS_REDUCTION_MEAN}),
      BP_OK)
      << b.text;
  append(bits, y);
  EXPECT_EQ(
      b.launch(BP_OP_BCE_WITH_LOGITS_LOSS,
               bp_bce_with_logits_loss_args{.x = &x,
                                            .target = &target,
                                            .weight = &weight,
                                            .y = &y,
                                            .reduction = BP_BCE_WITH_LOGITS_LOSS_REDUCTION_SUM}),
      BP_OK)
      << b.text;
  append(bits, y);
  TestTensor rows(b, BP_F32, {5000, 7}), classes(b, BP_I64, {5000});
  fill(rows);
  for (int64_t i = 0; i < classes.size(); ++i) classes.at<int64_t>(i) = i % 7;
  EXPECT_EQ(b.launch(BP_OP_NLL_LOSS, bp_nll_loss_args{.x = &rows,
                                                      .target = &classes,
                                                      .y = &y,
                                                      .ignore_index = 3,
                                                      .reduction = BP_NLL_LOSS_REDUCTION_MEAN}),
            BP_OK)
      << b.text;
  append(bits, y);
  return bits;
}

std::vector<float> norms_with(const char* threads) {
  TestBackend b{BACKEND_PATH, {{"threads", threads}}};
  std::vector<float> bits;
  // Channels that are rows, and channels that are columns.
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{6, 24, 31, 7}, std::vector<int64_t>{300, 1400}}) {
    TestTensor x(b, BP_F32, shape), y(b, BP_F32, shape), gamma(b, BP_F32, {shape[1]});
    TestTensor mean(b, BP_F32, {shape[1]}), variance(b, BP_F32, {shape[1]});
    fill(x, 100);
    fill(gamma);
    EXPECT_EQ(b.launch(BP_OP_BATCH_NORM_TRAINING, bp_batch_norm_training_args{.x = &x,
                                                                              .gamma = &gamma,
                                                                              .y = &y,
                                                                              .mean = &mean,
                                                                              .variance = &variance,
                                                                              .eps = 1e-5}),
              BP_OK)
        << b.text;
    for (TestTensor* t : {std::addressof(y), std::addressof(mean), std::addressof(variance)}) {
      append(bits, *t);
    }
    EXPECT_EQ(
        b.launch(BP_OP_GROUP_NORM,
                 bp_group_norm_args{.x = &x, .gamma = &gamma, .y = &y, .groups = 4, .eps = 1e-5}),
        BP_OK)
        << b.text;
    append(bits, y);
  }
  return bits;
}

TEST(Losses, GiveEqualBitsForEveryNumberOfThreads) {
  const std::vector<float> bits = losses_with("1");
  EXPECT_EQ(losses_with("2"), bits);
  EXPECT_EQ(losses_with("5"), bits);
}

TEST(NormsOfChannels, GiveEqualBitsForEveryNumberOfThreads) {
  const std::vector<float> bits = norms_with("1");
  EXPECT_EQ(norms_with("2"), bits);
  EXPECT_EQ(norms_with("5"), bits);
}

TEST(Losses, NameTheFirstTargetThatIsNoClass) {
  TestBackend b{BACKEND_PATH, {{"threads", "3"}}};
  TestTensor x(b, BP_F32, {5000, 7}), classes(b, BP_I64, {5000}), y(b, BP_F32, {});
  fill(x);
  for (int64_t i = 0; i < classes.size(); ++i) classes.at<int64_t>(i) = i % 7;
  classes.at<int64_t>(4321) = classes.at<int64_t>(2100) = 7;
  ASSERT_EQ(b.launch(BP_OP_NLL_LOSS, bp_nll_loss_args{.x = &x,
                                                      .target = &classes,
                                                      .y = &y,
                                                      .ignore_index = -1,
                                                      .reduction = BP_NLL_LOSS_REDUCTION_SUM}),
            BP_OK);
  EXPECT_EQ(b.streams->synchronize(b.streams->self, b.default_stream(), UINT64_MAX),
            BP_DATA_FAILURE);
  EXPECT_EQ(b.text, "nll_loss: element 2100 of target is 7, not from 0 to 6 and not ignore_index");
}

// The result and the inputs together do not fit the cache, so the result is written past it.
TEST(Losses, TakeTensorsThatOutgrowTheCaches) {
  TestBackend b{BACKEND_PATH, {{"threads", "2"}}};
  TestTensor x(b, BP_F32, {(1 << 21) + 5}), target(b, BP_F32, {(1 << 21) + 5}),
      y(b, BP_F32, {(1 << 21) + 5});
  fill(x);
  fill(target, 1);
  ASSERT_EQ(
      b.launch(BP_OP_L1_LOSS,
               bp_l1_loss_args{
                   .x = &x, .target = &target, .y = &y, .reduction = BP_L1_LOSS_REDUCTION_NONE}),
      BP_OK)
      << b.text;
  for (int64_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y.at<float>(i), std::abs(x.at<float>(i) - target.at<float>(i))) << i;
  }
}

TEST(NormsOfChannels, TakeTensorsThatOutgrowTheCaches) {
  TestBackend b{BACKEND_PATH, {{"threads", "2"}}};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3, 4, 300007}, std::vector<int64_t>{1100, 3001}}) {
    TestTensor x(b, BP_F32, shape), y(b, BP_F32, shape), mean(b, BP_F32, {shape[1]}),
        variance(b, BP_F32, {shape[1]}), beta(b, BP_F32, {shape[1]});
    fill(x);
    fill(mean);
    fill(beta);
    for (int64_t c = 0; c < shape[1]; ++c) variance.at<float>(c) = 0.25f;
    ASSERT_EQ(b.launch(BP_OP_BATCH_NORM_INFERENCE,
                       bp_batch_norm_inference_args{
                           .x = &x,
                           .mean = &mean,
                           .variance = &variance,
                           .beta = &beta,
                           .y = &y,
                       }),
              BP_OK)
        << b.text;
    const int64_t places = x.size() / (shape[0] * shape[1]);
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t c = i / places % shape[1];
      const float expected = (x.at<float>(i) - mean.at<float>(c)) * 2 + beta.at<float>(c);
      ASSERT_NEAR(y.at<float>(i), expected, 1e-5) << i;
    }
  }
}

}  // namespace
}  // namespace bp
