// Attention as products of matrices, with the rows of scores weighed in between (sdpa_rows.comp):
// for processors, whose product is faster than any loop over memory.
//
// Scores are made part by part in the workspace, so that it does not grow with their number.
#pragma once

#include <cstdint>

#include "backends/vulkan/kernels/submit.hpp"

namespace bp::vulkan {

// Whether attention is made of products on this device.
inline bool multiplies_attention(const Env& env) { return env.binds(); }

uint64_t attention_workspace(const bp_sdpa_args& args, const Env& env);
uint64_t attention_workspace(const bp_sdpa_backward_args& args, const Env& env);

// Where a query does not see all keys, and what it does not see is not finite, results are NaN that
// should not be. Of the gradient, delta has to lie at the beginning of the workspace.
bp_status submit_attention(const bp_sdpa_args& args, Launch& launch);
bp_status submit_attention(const bp_sdpa_backward_args& args, Launch& launch);

}  // namespace bp::vulkan
