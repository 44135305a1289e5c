// The probability of dropout, as shaders take it.
#pragma once

#include <cmath>
#include <cstdint>

namespace bp::vulkan {

// A uniform number is word * 2^-24. It is at least p if the word is at least the threshold, p *
// 2^24 rounded up. At p = 1 no number is.
inline uint32_t dropout_threshold(double p) { return static_cast<uint32_t>(std::ceil(p * 0x1p24)); }

// Returns what elements that are kept are multiplied by.
inline float dropout_scale(double p) { return static_cast<float>(1.0 / (1.0 - p)); }

}  // namespace bp::vulkan
