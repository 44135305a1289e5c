// bias_correction.glsl for the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace bp::vulkan::corrections {

using uint = uint32_t;

// The names are those of GLSL.
// NOLINTNEXTLINE(readability-identifier-naming)
inline int findMSB(uint x) { return 31 - std::countl_zero(x); }
// NOLINTNEXTLINE(readability-identifier-naming)
inline float uintBitsToFloat(uint bits) { return std::bit_cast<float>(bits); }

// The shaders convert without saying so, and do not say that a function is inline.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wold-style-cast"
namespace {
#include "backends/vulkan/kernels/bias_correction.glsl"
}  // namespace
#pragma GCC diagnostic pop

// Returns the fraction of a beta, rounded down. A beta outside of 0 to 1 gives 0.
inline uint64_t fraction_of(double beta) {
  return beta > 0 && beta < 1 ? static_cast<uint64_t>(std::ldexp(beta, 64)) : 0;
}

}  // namespace bp::vulkan::corrections
