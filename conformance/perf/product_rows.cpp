// Products: matrices, convolutions, attention and recurrent sequences. Pooling is here too, because
// it has the windows of convolutions.
//
// The oracle needs about a second for each of these sizes. It multiplies one pair of numbers after
// the other, and does so four times: for values and for bounds, in two groups of data. For f64 it
// computes in pairs of doubles.
#include "conformance/perf/rows.hpp"

namespace bp::conformance {
namespace {

const std::vector<bp_dtype> kF32 = {BP_F32};
const std::vector<bp_dtype> kTwo = {BP_F32, BP_BF16};

constexpr const char* kMatmul = "random.m17k33n19.dense";

PerfRow matmul(const char* what, std::vector<bp_dtype> dtypes, Shape a, Shape b) {
  return {
      BP_OP_MATMUL, what, kMatmul, std::move(dtypes), {{"a", std::move(a)}, {"b", std::move(b)}}};
}

void add_matrix_rows(std::vector<PerfRow>& rows) {
  rows.push_back(matmul("square512", {BP_F32, BP_F16, BP_BF16}, {512, 512}, {512, 512}));
  rows.push_back(matmul("square256", {BP_F64}, {256, 256}, {256, 256}));
  rows.push_back(matmul("odd", kF32, {509, 383}, {383, 401}));
  rows.push_back(matmul("row_vector", kTwo, {1, 2048}, {2048, 2048}));
  rows.push_back(matmul("few_rows", kF32, {8, 1024}, {1024, 2048}));
  rows.push_back(matmul("long_sum", kF32, {32, 32768}, {32768, 32}));
  PerfRow transposed = matmul("transposed_b", kF32, {384, 384}, {384, 384});
  transposed.base = "onehot.m17k33n19.transposed_b";
  rows.push_back(std::move(transposed));
  PerfRow batched = matmul("batch64", kF32, {64, 96, 96}, {64, 96, 96});
  batched.base = "random.m5k7n3_batch2.dense";
  rows.push_back(std::move(batched));
  const std::vector<PerfShape> linear = {
      {"x", {256, 512}}, {"weight", {768, 512}}, {"bias", {768}}, {"y", {256, 768}}};
  rows.push_back({BP_OP_LINEAR, "bias", "random.17x33_n19_bias.dense", kTwo, linear});
  rows.push_back({BP_OP_LINEAR, "bias_gelu", "random.5x7_n3_bias_gelu.dense", kF32, linear});
}

// Base cases have a 3x3 window, padding of 1 on each side, and one stride of 1 or of 2.
void add_convolution_rows(std::vector<PerfRow>& rows) {
  constexpr const char* k3x3 = "random.1x16x6x6_o16_k3x3_p1x1x1x1_bias.dense";
  const Shape x = {4, 32, 28, 28}, weight = {64, 32, 3, 3}, y = {4, 64, 28, 28};
  rows.insert(
      rows.end(),
      {
          {BP_OP_CONVOLUTION, "k3x3", k3x3, kTwo, {{"x", x}, {"weight", weight}, {"bias", {64}}}},
          {BP_OP_CONVOLUTION,
           "k1x1",
           "random.1x3x5x7_o4_k1x1_bias.dense",
           kF32,
           {{"x", {4, 128, 28, 28}}, {"weight", {128, 128, 1, 1}}, {"bias", {128}}}},
          {BP_OP_CONVOLUTION,
           "depthwise",
           "random.1x6x7x7_o6_k3x3_p1x1x1x1_g6.dense",
           kF32,
           {{"x", {4, 128, 28, 28}}, {"weight", {128, 1, 3, 3}}},
           {{"groups", int64_t{128}}}},
          {BP_OP_CONVOLUTION_BACKWARD_INPUT,
           "k3x3",
           k3x3,
           kF32,
           {{"grad_y", y}, {"weight", weight}},
           {{"input_size", Shape{28, 28}}}},
          {BP_OP_CONVOLUTION_BACKWARD_WEIGHT,
           "k3x3",
           k3x3,
           kF32,
           {{"grad_y", y}, {"x", x}},
           {{"kernel_size", Shape{3, 3}}}},
          {BP_OP_CONVOLUTION_BACKWARD_BIAS,
           "planes",
           "random.1x16x6x6.dense",
           kF32,
           {{"grad_y", {8, 64, 28, 28}}}},
      });
}

void add_pooling_rows(std::vector<PerfRow>& rows) {
  constexpr const char* kMax = "1x17x7x9_k3x3_s2x2_p1x1x1x1_d1x1.dense";
  constexpr const char* kAverage = "random.1x17x7x9_k3x3_s2x2_p1x1x1x1_counts.dense";
  static const std::string forward = std::string("random.") + kMax;
  static const std::string backward = std::string("exact_dense.") + kMax;
  const Shape x = {8, 64, 32, 32}, y = {8, 64, 16, 16};
  const std::vector<Attribute> size = {{"input_size", Shape{32, 32}}};
  rows.insert(rows.end(),
              {
                  {BP_OP_MAX_POOL, "k3x3_s2", forward.c_str(), kF32, {{"x", x}}},
                  {BP_OP_MAX_POOL_BACKWARD,
                   "k3x3_s2",
                   backward.c_str(),
                   kF32,
                   {{"grad_y", y}, {"indices", y}},
                   size},
                  {BP_OP_AVG_POOL, "k3x3_s2", kAverage, kF32, {{"x", x}}},
                  {BP_OP_AVG_POOL_BACKWARD, "k3x3_s2", kAverage, kF32, {{"grad_y", y}}, size},
              });
}

void add_attention_rows(std::vector<PerfRow>& rows) {
  const Shape heads = {1, 8, 256, 64}, few = {1, 4, 128, 64};
  const std::vector<PerfShape> forward = {{"q", heads}, {"k", heads}, {"v", heads}};
  const std::vector<PerfShape> backward = {{"grad_y", few}, {"q", few}, {"k", few},
                                           {"v", few},      {"y", few}, {"lse", {1, 4, 128}}};
  const Shape many = {1, 4, 1024, 64};
  const std::vector<PerfShape> longer = {{"q", many}, {"k", many}, {"v", many}};
  const std::vector<Attribute> scale = {{"scale", 0.125}};
  const std::vector<Attribute> window = {{"scale", 0.125}, {"window_left", int64_t{128}}};
  constexpr const char* kPlain = "random.b2h2g2q5k5d4v4.dense";
  constexpr const char* kCausal = "random.b2h2g2q5k5d4v4_causal.dense";
  constexpr const char* kWindow = "random.b2h4g2q5k9d8v6_causal_left3.dense";
  rows.insert(rows.end(),
              {
                  {BP_OP_SDPA, "h8s256d64", kPlain, kF32, forward, scale},
                  {BP_OP_SDPA, "causal_h8s256d64", kCausal, kTwo, forward, scale},
                  {BP_OP_SDPA, "causal_h4s1024d64", kCausal, kF32, longer, scale},
                  {BP_OP_SDPA, "window128_h4s1024d64", kWindow, kF32, longer, window},
                  {BP_OP_SDPA_BACKWARD, "causal_h4s128d64", kCausal, kF32, backward, scale},
                  {BP_OP_ROPE,
                   "halves",
                   "random.5x34_r17_halves.dense",
                   kF32,
                   {{"x", {4096, 128}}, {"cos", {4096, 64}}, {"sin", {4096, 64}}}},
              });
}

// The base cases have small recurrent weights, so that bounds do not grow from step to step.
void add_recurrent_rows(std::vector<PerfRow>& rows) {
  const Shape steps = {32, 16, 128}, state = {16, 128};
  const auto shapes = [&](int64_t gates, int64_t saved) {
    const Shape weight = {gates * 128, 128};
    std::vector<PerfShape> all = {
        {"x", steps}, {"h", state}, {"weight", weight}, {"recurrent", weight}};
    if (saved == 0) {
      all.push_back({"bias", {gates * 128}});
    } else {
      all.insert(all.end(), {{"grad_y", steps},
                             {"grad_h_next", state},
                             {"y", steps},
                             {"gates", {32, 16, saved * 128}}});
    }
    return all;
  };
  const auto with = [](std::vector<PerfShape> all, PerfShape more) {
    all.push_back(std::move(more));
    return all;
  };
  constexpr const char* kLstm = "random.2x3x3x67_full.dense";
  constexpr const char* kGru = "random.2x3x3x67_after_full.dense";
  constexpr const char* kRnn = "random.2x3x3x67_tanh_full.dense";
  rows.insert(
      rows.end(),
      {
          {BP_OP_LSTM, "t32b16h128", kLstm, kTwo, with(shapes(4, 0), {"c", state})},
          {BP_OP_LSTM_BACKWARD, "t32b16h128", kLstm, kF32,
           with(shapes(4, 5), {"grad_c_next", state})},
          {BP_OP_GRU, "t32b16h128", kGru, kF32, with(shapes(3, 0), {"recurrent_bias", {384}})},
          {BP_OP_GRU_BACKWARD, "t32b16h128", kGru, kF32, shapes(3, 4)},
          {BP_OP_RNN, "t32b16h128", kRnn, kF32, shapes(1, 0)},
      });
}

}  // namespace

void add_product_rows(std::vector<PerfRow>& rows) {
  add_matrix_rows(rows);
  add_convolution_rows(rows);
  add_pooling_rows(rows);
  add_attention_rows(rows);
  add_recurrent_rows(rows);
}

}  // namespace bp::conformance
