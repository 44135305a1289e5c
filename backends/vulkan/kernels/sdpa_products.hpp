// Computes attention with matrix products, and turns scores into weights between them
// (sdpa_rows.comp). It is for processors, where the product is faster than any loop over memory.
//
// Scores are computed in parts, so that the workspace does not grow with their number.
#pragma once

#include <cstdint>

#include "backends/vulkan/kernels/submit.hpp"

namespace bp::vulkan {

// Returns whether this device computes attention with products.
inline bool multiplies_attention(const Env& env) { return env.binds(); }

uint64_t attention_workspace(const bp_sdpa_args& args, const Env& env);
uint64_t attention_workspace(const bp_sdpa_backward_args& args, const Env& env);

// Submit attention and its gradient. If a query does not see all keys, and a value that it does not
// see is not finite, some results are NaN that should not be NaN. For the gradient, delta must lie
// at the beginning of the workspace.
bp_status submit_attention(const bp_sdpa_args& args, Launch& launch);
bp_status submit_attention(const bp_sdpa_backward_args& args, Launch& launch);

}  // namespace bp::vulkan
