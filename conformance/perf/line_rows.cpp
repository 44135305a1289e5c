// Ops along an axis: reductions, softmax, norms, sorting, losses and Fourier transforms. The
// optimizers and the random ops are here too.
#include "conformance/perf/rows.hpp"

namespace bp::conformance {
namespace {

const std::vector<bp_dtype> kF32 = {BP_F32};
const std::vector<bp_dtype> kAll = {BP_F32, BP_F16, BP_BF16, BP_F64};
const std::vector<bp_dtype> kThree = {BP_F32, BP_F16, BP_BF16};
const std::vector<bp_dtype> kCounted = {BP_F32, BP_BOOL};

const Shape kLine = {1 << 20}, kSquare = {1024, 1024}, kCube = {64, 256, 64};

void add_reduction_rows(std::vector<PerfRow>& rows) {
  rows.insert(
      rows.end(),
      {
          {BP_OP_SUM, "axis0", "random.5x7_axes0.dense", kF32, {{"x", kSquare}}},
          {BP_OP_SUM, "axis1", "random.5x7_axes1.dense", kAll, {{"x", kSquare}}},
          {BP_OP_SUM, "middle", "random.3x4x5_axes1.dense", kF32, {{"x", kCube}}},
          {BP_OP_SUM, "all", "random.5x7_axes01.dense", kF32, {{"x", kSquare}}},
          {BP_OP_MEAN, "axis1", "random.5x7_axes1.dense", kThree, {{"x", kSquare}}},
          {BP_OP_AMAX, "axis1", "repeat.5x7_axes1.dense", kThree, {{"x", kSquare}}},
          {BP_OP_AMIN, "axis1", "repeat.5x7_axes1.dense", kThree, {{"x", kSquare}}},
          {BP_OP_PROD, "axis1", "random.5x7_axes1.dense", kThree, {{"x", kSquare}}},
          {BP_OP_ANY, "axis1", "few_zeros.5x7_axes1.dense", kCounted, {{"x", kSquare}}},
          {BP_OP_ALL, "axis1", "few_zeros.5x7_axes1.dense", kCounted, {{"x", kSquare}}},
          {BP_OP_COUNT_NONZERO, "axis1", "few_zeros.5x7_axes1.dense", kCounted, {{"x", kSquare}}},
          {BP_OP_LOGSUMEXP, "axis1", "random.5x7_axes1.dense", kThree, {{"x", kSquare}}},
          {BP_OP_ARGMAX, "axis0", "repeat.5x7_axes0.dense", kF32, {{"x", kSquare}}},
          {BP_OP_ARGMAX, "axis1", "repeat.5x7_axes1.dense", kF32, {{"x", kSquare}}},
          {BP_OP_ARGMIN, "axis1", "repeat.5x7_axes1.dense", kF32, {{"x", kSquare}}},
          {BP_OP_CUMSUM, "axis0", "random.5x7_axis0.dense", kF32, {{"x", kSquare}}},
          {BP_OP_CUMSUM, "axis1", "random.5x7_axis1.dense", kThree, {{"x", kSquare}}},
          {BP_OP_CUMSUM, "line", "random.1031_axis0.dense", kF32, {{"x", kLine}}},
          {BP_OP_CUMPROD, "axis1", "random.5x7_axis1.dense", kF32, {{"x", kSquare}}},
      });
}

void add_norm_rows(std::vector<PerfRow>& rows) {
  rows.insert(
      rows.end(),
      {
          {BP_OP_SOFTMAX, "axis1", "random.5x10_axis1.dense", kAll, {{"x", kSquare}}},
          {BP_OP_SOFTMAX, "axis0", "random.67x5_axis0.dense", kF32, {{"x", kSquare}}},
          {BP_OP_LOG_SOFTMAX, "axis1", "random.5x10_axis1.dense", kThree, {{"x", kSquare}}},
          {BP_OP_SOFTMAX_BACKWARD,
           "axis1",
           "random.5x10_axis1.dense",
           kThree,
           {{"grad_y", kSquare}, {"y", kSquare}}},
          {BP_OP_LAYER_NORM,
           "rows",
           "random.4x67_over1.dense",
           kThree,
           {{"x", kSquare}, {"gamma", {1024}}, {"beta", {1024}}}},
          {BP_OP_LAYER_NORM_BACKWARD,
           "rows",
           "random.4x67_over1.dense",
           kThree,
           {{"grad_y", {512, 1024}},
            {"x", {512, 1024}},
            {"gamma", {1024}},
            {"mean", {512}},
            {"rstd", {512}}}},
          {BP_OP_RMS_NORM,
           "rows",
           "random.4x67_over1.dense",
           kThree,
           {{"x", kSquare}, {"gamma", {1024}}}},
          {BP_OP_RMS_NORM_BACKWARD,
           "rows",
           "random.4x67_over1.dense",
           kThree,
           {{"grad_y", {512, 1024}}, {"x", {512, 1024}}, {"gamma", {1024}}, {"rstd", {512}}}},
      });
}

void add_order_rows(std::vector<PerfRow>& rows) {
  rows.insert(
      rows.end(),
      {
          {BP_OP_SORT, "axis1", "random.3x257_axis1_smallest.dense", kF32, {{"x", {256, 1024}}}},
          {BP_OP_TOPK,
           "axis1_k16",
           "random.3x257_axis1_k257_largest.dense",
           kF32,
           {{"x", {256, 2048}}},
           {{"k", int64_t{16}}}},
          {BP_OP_CROSS_ENTROPY,
           "classes1000",
           "random.n17c10_mean.dense",
           kF32,
           {{"x", {512, 1000}}, {"target", {512}}},
           {},
           1000},
          {BP_OP_CROSS_ENTROPY_BACKWARD,
           "classes1000",
           "random.n17c10_mean.dense",
           kF32,
           {{"x", {512, 1000}}, {"target", {512}}, {"lse", {512}}},
           {},
           1000},
      });
}

void add_step_rows(std::vector<PerfRow>& rows) {
  const Shape matrix = {512, 512};
  rows.insert(rows.end(),
              {
                  {BP_OP_ADAMW_STEP,
                   "two_tensors",
                   "random.67_5x7_step2_decay.dense",
                   kF32,
                   {{"params", {262144}},
                    {"params", matrix},
                    {"exp_avg", {262144}},
                    {"exp_avg", matrix},
                    {"exp_avg_sq", {262144}},
                    {"exp_avg_sq", matrix},
                    {"grads", {262144}},
                    {"grads", matrix}}},
                  {BP_OP_SGD_STEP,
                   "momentum",
                   "random.67_5x7_momentum.dense",
                   kF32,
                   {{"params", {262144}},
                    {"params", matrix},
                    {"momentum_buffers", {262144}},
                    {"momentum_buffers", matrix},
                    {"grads", {262144}},
                    {"grads", matrix}}},
                  {BP_OP_RANDOM_BITS, "dense", "seed42.1031.dense", {BP_I32}, {{"y", kLine}}},
                  {BP_OP_UNIFORM, "dense", "seed42.1031.dense", kF32, {{"y", kLine}}},
                  {BP_OP_NORMAL, "dense", "seed42.1031.dense", kF32, {{"y", {1 << 18}}}},
                  {BP_OP_DROPOUT, "dense", "seed42.1031_p10.dense", kF32, {{"x", {1 << 19}}}},
              });
}

// 1000 has the factors 2 and 5, and 1009 is prime.
void add_fourier_rows(std::vector<PerfRow>& rows) {
  constexpr const char *kLast = "random.5x7_axis1.dense", *kFirst = "random.7x5_axis0.dense";
  const std::vector<Attribute> length = {{"length", int64_t{4096}}};
  rows.insert(rows.end(),
              {
                  {BP_OP_FFT, "n256", kLast, kF32, {{"x", {2048, 256, 2}}}},
                  {BP_OP_FFT, "n1000", kLast, kF32, {{"x", {512, 1000, 2}}}},
                  {BP_OP_FFT, "n1009", kLast, kF32, {{"x", {64, 1009, 2}}}},
                  {BP_OP_FFT, "n4096", kLast, kAll, {{"x", {128, 4096, 2}}}},
                  {BP_OP_FFT, "axis0", kFirst, kF32, {{"x", {1024, 512, 2}}}},
                  {BP_OP_IFFT, "n4096", kLast, kF32, {{"x", {128, 4096, 2}}}},
                  {BP_OP_RFFT, "n4096", kLast, kThree, {{"x", {256, 4096}}}},
                  {BP_OP_IRFFT, "n4096", kLast, kThree, {{"x", {256, 2049, 2}}}, length},
              });
}

}  // namespace

void add_line_rows(std::vector<PerfRow>& rows) {
  add_reduction_rows(rows);
  add_norm_rows(rows);
  add_order_rows(rows);
  add_step_rows(rows);
  add_fourier_rows(rows);
}

}  // namespace bp::conformance
