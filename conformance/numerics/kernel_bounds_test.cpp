// Tests the bounds on ops with f32 kernels as people write them: right ones pass, and wrong ones
// fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>

#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/dtype.hpp"
#include "conformance/numerics/philox.hpp"
#include "conformance/reference/activation.hpp"
#include "conformance/reference/elementwise.hpp"

namespace bp::conformance {
namespace {

float drawn(uint32_t which, uint64_t i, float low, float high) {
  const auto share = static_cast<float>(element_bits(21, which, i) >> 40) * 0x1p-24f;
  return low + (high - low) * share;
}

std::vector<float> drawn_row(size_t count, uint32_t which, float low, float high) {
  std::vector<float> row(count);
  for (size_t i = 0; i < count; ++i) row[i] = drawn(which, i, low, high);
  return row;
}

// ---- Functions of one value ------------------------------------------------------------------ //

using InF32 = std::function<float(float)>;
using InF64 = std::function<double(double)>;
using BoundOf = std::function<double(double x, double r)>;

// Returns for how many of 2,000 values the error of the result exceeds the bound. The result itself
// is rounded to f32.
int beyond(float low, float high, const InF32& kernel, const InF64& exact, const BoundOf& bound) {
  int count = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const float x = drawn(1, i, low, high);
    const double r = exact(static_cast<double>(x));
    const double error = std::fabs(static_cast<double>(kernel(x)) - r);
    count += error > bound(static_cast<double>(x), r) + 0.5 * ulp(BP_F32, r);
  }
  return count;
}

double exact_gelu(double x) { return 0.5 * x * std::erfc(-x * M_SQRT1_2); }

TEST(KernelBounds, AcceptAGeluByErfcAndNotOneByErfInTheLeftTail) {
  const BoundOf bound = [](double x, double) { return gelu_bound(BP_F32, x); };
  const InF32 by_erfc = [](float x) { return 0.5f * x * std::erfc(-x * 0.70710678118654752f); };
  const InF32 by_erf = [](float x) {
    return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));
  };
  EXPECT_EQ(beyond(-5.5f, 5.5f, by_erfc, exact_gelu, bound), 0);
  EXPECT_EQ(beyond(0, 5.5f, by_erf, exact_gelu, bound), 0) << "there nothing cancels";
  EXPECT_GT(beyond(-5.5f, -4, by_erf, exact_gelu, bound), 1900);
}

TEST(KernelBounds, TellGeluFromItsApproximation) {
  const auto by_tanh = []<typename T>(T x) {
    return T(0.5) * x * (1 + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
  };
  const InF32 kernel = [&](float x) { return by_tanh(x); };
  // The hyperbolic tangent of this one is made of an exponential.
  const InF32 by_exp = [](float x) {
    const float e = std::exp(1.5957691216057308f * (x + 0.044715f * x * x * x));
    return x - x / (e + 1);
  };
  const InF64 exact = [&](double x) { return by_tanh(x); };
  const BoundOf bound = [](double x, double) {
    return reference::gelu(Bounded<24>(x), reference::Gelu::kTanh).error + 0x1p-126;
  };
  EXPECT_EQ(beyond(-6, 6, kernel, exact, bound), 0);
  EXPECT_EQ(beyond(-6, 6, by_exp, exact, bound), 0);
  EXPECT_GT(beyond(
                -3, 3, [&](float x) { return kernel(x) * (1 + 0x1p-19f); }, exact, bound),
            500);
  EXPECT_GT(
      beyond(-3, 3, kernel, exact_gelu, [](double x, double) { return gelu_bound(BP_F32, x); }),
      1500);
}

TEST(KernelBounds, AcceptSigmoidAndSilu) {
  const InF32 sigmoid = [](float x) { return 1 / (1 + std::exp(-x)); };
  const InF64 exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  const BoundOf bound = [](double x, double) {
    return elementwise::sigmoid(Bounded<24>(x)).error + 0x1p-126;
  };
  const BoundOf silu_bound = [](double x, double) {
    return elementwise::silu(Bounded<24>(x)).error + 0x1p-126;
  };
  EXPECT_EQ(beyond(-30, 30, sigmoid, exact, bound), 0);
  // Both formulas are wrong: a table of 16 bits, and one minus the other side.
  EXPECT_GT(
      beyond(
          -10, 10, [&](float x) { return std::round(sigmoid(x) * 65536) / 65536; }, exact, bound),
      1500);
  EXPECT_GT(beyond(
                -20, -5, [&](float x) { return 1 - sigmoid(-x); }, exact, bound),
            1500);
  const InF32 silu = [&](float x) { return x * sigmoid(x); };
  const InF64 exact_silu = [&](double x) { return x * exact(x); };
  EXPECT_EQ(beyond(-30, 30, silu, exact_silu, silu_bound), 0);
  // No bound grows where the function is constant or linear.
  EXPECT_EQ(beyond(80, 1e30f, sigmoid, exact, bound), 0);
  EXPECT_EQ(beyond(80, 1e30f, silu, exact_silu, silu_bound), 0);
  EXPECT_EQ(beyond(
                80, 1e30f, [&](float x) { return sigmoid(x) * 0.99999f; }, exact, bound),
            2000);
  EXPECT_EQ(beyond(
                80, 1e30f, [&](float x) { return silu(x) * 0.99999f; }, exact_silu, silu_bound),
            2000);
}

// exp as relaxed math may have it, below 0: 2 abs(x) ulps more.
float relaxed_exp(float x) { return std::exp(x) * (1 + 0x1p-22f * std::fabs(x)); }

TEST(KernelBounds, AcceptSigmoidSiluAndGeluOfRelaxedMath) {
  const InF32 sigmoid = [](float x) {
    const float e = relaxed_exp(-std::fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
  };
  const InF32 silu = [&](float x) { return x * sigmoid(x); };
  // erfc by a table of its quotient with exp(-x^2 / 2).
  const InF32 gelu = [](float x) {
    const float e = relaxed_exp(-x * x / 2);
    const auto quotient =
        static_cast<float>(std::erfc(-double{x} * M_SQRT1_2) * std::exp(double{x} * double{x} / 2));
    return 0.5f * x * quotient * e;
  };
  const InF64 exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  const InF64 exact_silu = [&](double x) { return x * exact(x); };
  Numerics relaxed;
  relaxed.relaxed = true;
  const auto strangers = [&](bool is_relaxed) {
    const RelaxedMath math(is_relaxed);
    const BoundOf bound = [](double x, double) {
      return elementwise::sigmoid(Bounded<24>(x)).error + 0x1p-126;
    };
    const BoundOf silu_bound = [](double x, double) {
      return elementwise::silu(Bounded<24>(x)).error + 0x1p-126;
    };
    const BoundOf of_gelu = [&](double x, double) {
      return gelu_bound(BP_F32, x, is_relaxed ? relaxed : Numerics{});
    };
    return std::array{beyond(-40, 0, sigmoid, exact, bound),
                      beyond(-40, 0, silu, exact_silu, silu_bound),
                      beyond(-10, 0, gelu, exact_gelu, of_gelu)};
  };
  for (const int count : strangers(true)) EXPECT_EQ(count, 0);
  // The bound of gelu is wide enough for most of this error.
  EXPECT_GT(strangers(false)[0], 500);
  EXPECT_GT(strangers(false)[1], 500);
}

TEST(KernelBounds, AcceptTanhAndNotOneThatCancels) {
  const InF64 exact = [](double x) { return std::tanh(x); };
  const BoundOf bound = [](double, double r) { return tanh_bound(BP_F32, r); };
  EXPECT_EQ(beyond(
                -5, 5, [](float x) { return std::tanh(x); }, exact, bound),
            0);
  const InF32 by_exp = [](float x) {
    const float e = std::exp(2 * x);
    return (e - 1) / (e + 1);
  };
  EXPECT_GT(beyond(-0.01f, 0.01f, by_exp, exact, bound), 1500);
}

TEST(KernelBounds, OfRelaxedMathAreWider) {
  Numerics relaxed = resolve_numerics(nullptr, BP_F32);
  const Numerics strict = relaxed;
  relaxed.relaxed = true;
  EXPECT_GT(divide_bound(BP_F32, 1, relaxed), divide_bound(BP_F32, 1, strict));
  EXPECT_GT(sqrt_bound(BP_F32, 1, relaxed), sqrt_bound(BP_F32, 1, strict));
  EXPECT_GT(exp_bound(BP_F32, -20, 2e-9, relaxed), exp_bound(BP_F32, -20, 2e-9, strict));
  EXPECT_GT(log_bound(BP_F32, 1.0001, 1e-4, relaxed), log_bound(BP_F32, 1.0001, 1e-4, strict));
  EXPECT_EQ(log_bound(BP_F32, 3, 1.0986, relaxed), log_bound(BP_F32, 3, 1.0986, strict))
      << "the absolute part is for arguments near 1";
  EXPECT_EQ(exp_bound(BP_F64, -20, 2e-9, relaxed), exp_bound(BP_F64, -20, 2e-9, strict))
      << "f64 is never relaxed";
}

// ---- Rows ------------------------------------------------------------------------------------ //

struct ExactNorm {
  NormRow row;
  std::vector<double> y;
};

constexpr double kEps = 1e-5, kGamma = 1.25, kBeta = -0.5;

ExactNorm exact_norm(const std::vector<float>& x) {
  const auto count = static_cast<double>(x.size());
  ExactNorm norm;
  norm.row.count = count;
  for (const float v : x) {
    norm.row.mean += static_cast<double>(v) / count;
    norm.row.mean_magnitude += std::fabs(static_cast<double>(v)) / count;
  }
  double variance = 0;
  for (const float v : x) variance += std::pow(static_cast<double>(v) - norm.row.mean, 2) / count;
  norm.row.rstd = 1 / std::sqrt(variance + kEps);
  for (const float v : x) {
    norm.y.push_back(kGamma * (static_cast<double>(v) - norm.row.mean) * norm.row.rstd + kBeta);
  }
  return norm;
}

// Returns a norm in f32, in two passes or by the sum of squares, with the variance of a population
// or of a sample.
std::vector<float> norm_in_f32(const std::vector<float>& x, bool in_two_passes, size_t divisor) {
  float sum = 0, squares = 0;
  for (const float v : x) sum += v;
  const float mean = sum / static_cast<float>(x.size());
  for (const float v : x) squares += in_two_passes ? (v - mean) * (v - mean) : v * v;
  const float variance = squares / static_cast<float>(divisor) - (in_two_passes ? 0 : mean * mean);
  const float rstd = 1 / std::sqrt(variance + static_cast<float>(kEps));
  std::vector<float> y;
  y.reserve(x.size());
  for (const float v : x) {
    y.push_back(static_cast<float>(kGamma) * (v - mean) * rstd + static_cast<float>(kBeta));
  }
  return y;
}

size_t wrong_elements(const std::vector<float>& x, const std::vector<float>& y) {
  const ExactNorm exact = exact_norm(x);
  size_t count = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double bound =
        norm_bound(exact.row, static_cast<double>(x[i]), kGamma, kBeta, exact.y[i], BP_F32);
    const double error = std::fabs(static_cast<double>(y[i]) - exact.y[i]);
    count += !(error <= bound + 0.5 * ulp(BP_F32, exact.y[i]));
  }
  return count;
}

TEST(KernelBounds, AcceptALayerNormInTwoPassesWhereverItsMeanLies) {
  for (const size_t count : {2u, 67u, 4096u}) {
    for (const float shift : {0.0f, 3.0f, 1000.0f}) {
      const std::vector<float> x = drawn_row(count, 2, shift - 1, shift + 1);
      EXPECT_EQ(wrong_elements(x, norm_in_f32(x, true, count)), 0u) << count << " at " << shift;
    }
  }
}

TEST(KernelBounds, RefuseALayerNormBySumsOfSquaresFarFromZeroAndOneOfASample) {
  const std::vector<float> far = drawn_row(1024, 2, 999, 1001);
  EXPECT_GT(wrong_elements(far, norm_in_f32(far, false, far.size())), 512u);
  const std::vector<float> near = drawn_row(67, 2, -1, 1);
  EXPECT_GT(wrong_elements(near, norm_in_f32(near, true, near.size() - 1)), 50u);
}

TEST(KernelBounds, OfAMeanAndOfAReciprocalDeviationHoldForTheRow) {
  const std::vector<float> x = drawn_row(4096, 2, 2, 4);
  const NormRow row = exact_norm(x).row;
  float sum = 0, squares = 0;
  for (const float v : x) sum += v;
  const float mean = sum / 4096;
  for (const float v : x) squares += (v - mean) * (v - mean);
  const float rstd = 1 / std::sqrt(squares / 4096 + static_cast<float>(kEps));
  EXPECT_LE(std::fabs(static_cast<double>(mean) - row.mean), norm_mean_bound(row, BP_F32));
  EXPECT_LE(std::fabs(static_cast<double>(rstd) - row.rstd), norm_rstd_bound(row, BP_F32));
  EXPECT_LT(norm_mean_bound(row, BP_F32), 1e-3 * row.mean);
  EXPECT_LT(norm_rstd_bound(row, BP_F32), 1e-3 * row.rstd);
  NormRow rms = row;
  rms.mean_magnitude = 0;
  EXPECT_EQ(norm_mean_bound(rms, BP_F32), 0) << "RMS norm has no mean";
}

// Returns the softmax in f32 over scores that have errors of their own. `drops_peak` leaves out the
// largest score.
std::vector<float> weights_in_f32(const std::vector<float>& scores, bool drops_peak) {
  std::vector<float> weights;
  weights.reserve(scores.size());
  const float peak = *std::ranges::max_element(scores);
  float total = 0;
  for (const float score : scores) weights.push_back(std::exp(score - peak));
  if (drops_peak) *std::ranges::max_element(weights) = 0;
  for (const float weight : weights) total += weight;
  for (float& weight : weights) weight /= total;
  return weights;
}

TEST(KernelBounds, OfAttentionFollowTheErrorsOfTheScores) {
  constexpr size_t kKeys = 257;
  const std::vector<float> scores = drawn_row(kKeys, 3, -4, 4);
  std::vector<double> exact, offs(kKeys, 1e-3);
  std::vector<float> off_scores;
  for (size_t i = 0; i < kKeys; ++i) {
    exact.push_back(static_cast<double>(scores[i]));
    off_scores.push_back(scores[i] + (i % 2 == 0 ? 9e-4f : -9e-4f));
  }
  double total = 0;
  for (const double score : exact) total += std::exp(score);
  const auto wrong = [&](const std::vector<float>& weights, const AttentionBounds& bounds) {
    size_t count = 0;
    for (size_t i = 0; i < kKeys; ++i) {
      const double r = std::exp(exact[i]) / total;
      count += std::fabs(static_cast<double>(weights[i]) - r) > bounds.relative[i] * r;
    }
    return count;
  };
  const AttentionBounds loose = attention_bounds(exact, offs, BP_F32);
  const AttentionBounds tight = attention_bounds(exact, std::vector<double>(kKeys, 0), BP_F32);
  ASSERT_EQ(tight.relative.size(), kKeys);
  EXPECT_EQ(wrong(weights_in_f32(scores, false), tight), 0u);
  EXPECT_EQ(wrong(weights_in_f32(off_scores, false), loose), 0u);
  EXPECT_GT(wrong(weights_in_f32(off_scores, false), tight), 200u);
  EXPECT_GT(wrong(weights_in_f32(scores, true), tight), 200u) << "a key that is lost moves all";
  EXPECT_LT(tight.lse, 1e-4);
  EXPECT_GE(loose.lse, 1e-3);
}

TEST(KernelBounds, OfAttentionAreFiniteWhereKeysAreBlocked) {
  const std::vector<double> scores = {1, -HUGE_VAL, 2}, offs = {1e-6, 0, 1e-6};
  const AttentionBounds bounds = attention_bounds(scores, offs, BP_F32);
  for (const double bound : bounds.relative) EXPECT_TRUE(std::isfinite(bound));
  EXPECT_TRUE(std::isfinite(bounds.lse));
  EXPECT_TRUE(attention_bounds({}, {}, BP_F32).relative.empty());
}

TEST(KernelBounds, OfSumsGrowWithWhatTheKernelDeclares) {
  Numerics numerics = resolve_numerics(nullptr, BP_F32);
  const double plain = sum_bound(1, 1000, numerics);
  numerics.product = 0x1p-10;
  EXPECT_NEAR(sum_bound(1, 1000, numerics) - plain, 0x1p-10, 1e-12);
  numerics.product = 0;
  numerics.linear_growth = true;
  EXPECT_EQ(sum_bound(1, 1000, numerics), linear_sum_bound(1, 1000, numerics));
  EXPECT_GT(sum_bound(1, 1000, numerics), 3 * plain);
  numerics.underflow = 1e-3;
  EXPECT_GT(sum_bound(0, 1000, numerics), 0.9) << "what each step loses at the low end";
}

}  // namespace
}  // namespace bp::conformance
