// Oracles of the random ops: Philox4x32-10 on (seed, offset) and the number of the element. All of
// them but normal are exact.
#pragma once

#include <cstdint>

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

}  // namespace bp::conformance::reference
