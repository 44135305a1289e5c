// Tests what attention may declare: results of rounded weights pass where the kernel declares that,
// and only there, and the declaration does not excuse a key that is lost or a score that is
// rounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/numerics/accept.hpp"

namespace bp::conformance {
namespace {

constexpr bp_numerics declared(uint32_t products) {
  return {
      .struct_size = sizeof(bp_numerics), .struct_type = BP_STRUCT_NUMERICS, .products = products};
}
constexpr bp_numerics kTf32 = declared(BP_PRODUCTS_TF32), kBf16 = declared(BP_PRODUCTS_BF16);

// A row of attention, and its data. Each query sees all 70 keys of one head.
struct Subject {
  Subject(uint32_t op, bp_dtype dtype) : row(find(op, dtype)), data(row, case_seed(row.id(), 1)) {
    if (row.derive) row.derive(data);
  }
  Subject(const Subject&) = delete;  // The data refer to the row.

  static OpCase find(uint32_t op, bp_dtype dtype) {
    OpCases rows;
    add_attention(rows);
    return *std::ranges::find_if(rows, [&](const OpCase& each) {
      return each.op == op && each.dtype == dtype_text(dtype) && each.fill == "random" &&
             each.detail == "b1h1g1q5k70d80v80";
    });
  }
  std::vector<Expected> expected(const bp_numerics* numerics) const {
    return expectation(row, data, numerics).outputs;
  }

  const OpCase row;
  CallData data;
};

// Returns y with weights that are rounded to the dtype of v. `loses_peak` leaves out the key with
// the largest weight.
std::vector<double> rounded_attention(const CallData& data, bp_dtype dtype, bool loses_peak) {
  const auto q = data.array<double>("q"), k = data.array<double>("k"), v = data.array<double>("v");
  const int64_t queries = q.shape[2], keys = k.shape[2], width = q.shape[3];
  std::vector<double> y;
  for (int64_t i = 0; i < queries; ++i) {
    std::vector<double> weights;
    for (int64_t j = 0; j < keys; ++j) {
      double score = 0;
      for (int64_t c = 0; c < width; ++c) score += q[i * width + c] * k[j * width + c];
      weights.push_back(score * data.number("scale"));
    }
    const double peak = *std::ranges::max_element(weights);
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - peak);
    for (double& weight : weights) weight = round_to(dtype, DoubleDouble(weight));
    if (loses_peak) *std::ranges::max_element(weights) = 0;
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        sum += weights[static_cast<size_t>(j)] * v[j * width + c];
      }
      y.push_back(round_to(dtype, DoubleDouble(sum / total)));
    }
  }
  return y;
}

size_t refused(const std::vector<double>& y, bp_dtype dtype, const Expected& expected) {
  size_t count = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    count += !accept(dtype, y[i], exact_at(expected, static_cast<int64_t>(i)), Numerics{});
  }
  return count;
}

TEST(AttentionBounds, LetDeclaredKernelsRoundWeights) {
  for (const bp_dtype dtype : {BP_F16, BP_BF16}) {
    const Subject subject(BP_OP_SDPA, dtype);
    const bp_numerics& numerics = dtype == BP_F16 ? kTf32 : kBf16;
    const Expected strict = subject.expected(nullptr)[0], wide = subject.expected(&numerics)[0];
    const std::vector<double> y = rounded_attention(subject.data, dtype, false);
    EXPECT_EQ(refused(y, dtype, wide), 0u) << dtype_text(dtype);
    // The strict bound of f16 has what small weights may lose as subnormals, which is more.
    const size_t least = dtype == BP_BF16 ? y.size() / 20 : 0;
    EXPECT_GE(refused(y, dtype, strict), least) << dtype_text(dtype);
    const std::vector<double> lost = rounded_attention(subject.data, dtype, true);
    EXPECT_GT(refused(lost, dtype, wide), y.size() / 4) << dtype_text(dtype);
  }
}

TEST(AttentionBounds, GrantNoRoundingOfInputsThatProductsHold) {
  const auto is_lse_wider = [](bp_dtype dtype, const bp_numerics& numerics) {
    const Subject subject(BP_OP_SDPA, dtype);
    return subject.expected(&numerics)[1].bound != subject.expected(nullptr)[1].bound;
  };
  EXPECT_FALSE(is_lse_wider(BP_BF16, kBf16));
  EXPECT_FALSE(is_lse_wider(BP_BF16, kTf32));
  EXPECT_FALSE(is_lse_wider(BP_F16, kTf32));
  EXPECT_TRUE(is_lse_wider(BP_F16, kBf16)) << "bf16 has fewer bits than f16";
  EXPECT_TRUE(is_lse_wider(BP_F32, kTf32));
}

TEST(AttentionBounds, OfGradientsCountRoundedFactorsOfEachProduct) {
  for (const bp_dtype dtype : {BP_F16, BP_BF16, BP_F32}) {
    const Subject subject(BP_OP_SDPA_BACKWARD, dtype);
    const std::vector<Expected> strict = subject.expected(nullptr);
    const std::vector<Expected> wide = subject.expected(&kTf32);
    for (size_t output = 0; output < strict.size(); ++output) {
      const auto sum = [](const std::vector<double>& bounds) {
        return std::accumulate(bounds.begin(), bounds.end(), 0.0);
      };
      EXPECT_GT(sum(wide[output].bound), 10 * sum(strict[output].bound))
          << dtype_text(dtype) << " output " << output;
    }
  }
  const Subject wide_type(BP_OP_SDPA_BACKWARD, BP_F64);
  EXPECT_EQ(wide_type.expected(nullptr)[0].bound, wide_type.expected(&kTf32)[0].bound);
}

}  // namespace
}  // namespace bp::conformance
