// Oracles of the random ops: Philox4x32-10 on (seed, offset) and the number of the element. All of
// them but normal are exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "backplane/base.h"
#include "conformance/numerics/bounded.hpp"
#include "conformance/numerics/philox.hpp"
#include "conformance/reference/functions.hpp"

namespace bp::conformance::reference {

struct RandomState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

inline PhiloxCounter random_block(const RandomState& state, uint64_t block) {
  const auto low = [](uint64_t word) { return static_cast<uint32_t>(word); };
  const auto high = [](uint64_t word) { return static_cast<uint32_t>(word >> 32); };
  return philox({low(block), high(block), low(state.offset), high(state.offset)},
                {low(state.seed), high(state.seed)});
}

inline uint32_t random_bits(const RandomState& state, uint64_t index) {
  return random_block(state, index / 4)[index % 4];
}

inline double uniform(const RandomState& state, bp_dtype dtype, uint64_t index) {
  if (dtype == BP_F64) {
    const PhiloxCounter block = random_block(state, index / 2);
    const size_t first = 2 * (index % 2);
    const uint64_t word = block[first] | (uint64_t{block[first + 1]} << 32);
    return static_cast<double>(word >> 11) * 0x1p-53;
  }
  const uint32_t word = random_bits(state, index);
  if (dtype == BP_F16) return static_cast<double>(word >> 21) * 0x1p-11;
  if (dtype == BP_BF16) return static_cast<double>(word >> 24) * 0x1p-8;
  return static_cast<double>(word >> 8) * 0x1p-24;
}

// The numbers of f16 and bf16 are made from the uniform numbers of f32.
template <typename N>
N normal(const RandomState& state, bp_dtype dtype, uint64_t index, double mean, double std) {
  using std::log;
  using std::sqrt;
  const bp_dtype source = dtype == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32};
  const double first = uniform(state, source, index / 2 * 2);
  const double turns = uniform(state, source, index / 2 * 2 + 1);
  const N radius = sqrt(N(-2) * log(N(1 - first)));
  const N z = radius * (index % 2 == 0 ? cosine_of_turns<N>(turns) : sine_of_turns<N>(turns));
  return constant<N>(mean) + constant<N>(std) * z;
}

// Returns element `index` of dropout, where `x` is the value of the input.
template <typename N>
N dropout(const RandomState& state, uint64_t index, double p, N x) {
  if (p >= 1 || uniform(state, BP_F32, index) < p) return N(0);
  return x * (N(1) / (N(1) - constant<N>(p)));
}

// Returns an integer from low to high - 1.
inline int64_t random_integer(const RandomState& state, int64_t low, int64_t high, uint64_t index) {
  const auto range = static_cast<uint64_t>(high - low);
  return low + static_cast<int64_t>(random_bits(state, index) * range >> 32);
}

// Returns 0 to count - 1, sorted by keys of two words.
inline std::vector<int64_t> permutation(const RandomState& state, int64_t count) {
  const auto key = [&](int64_t i) {
    const auto first = 2 * static_cast<uint64_t>(i);
    const auto upper = static_cast<int32_t>(random_bits(state, first + 1));
    return int64_t{upper} * (int64_t{1} << 32) + random_bits(state, first);
  };
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, key);
  return order;
}

// Returns the class that number `draw` of [0, 1) chooses by the weights of a row.
inline int64_t drawn_class(std::span<const double> weights, double draw) {
  const auto counts = [](double weight) { return weight > 0 && std::isfinite(weight); };
  double peak = 0;
  for (const double weight : weights) peak = counts(weight) ? std::fmax(peak, weight) : peak;
  std::vector<int64_t> ends;
  int64_t total = 0;
  for (const double weight : weights) {
    if (counts(weight)) total += static_cast<int64_t>(std::floor(weight / peak * 0x1p32));
    ends.push_back(total);
  }
  const auto place = static_cast<int64_t>(std::floor(draw * static_cast<double>(total)));
  const auto found = std::ranges::find_if(ends, [&](int64_t end) { return end > place; });
  return std::min<int64_t>(found - ends.begin(), std::ssize(ends) - 1);
}

}  // namespace bp::conformance::reference
