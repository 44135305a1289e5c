// Decides which kernels take tensors in a layout of the backend's own.
//
// A kernel lists the layouts that it takes per argument (bp_layout_claim). Whether a layout serves
// this very call depends on shapes too, so supports() is asked about each call. The backend is not
// asked what it prefers: that is a question of those who lay memory out.
#pragma once

#include <string>

#include "registry/calls/call.hpp"

namespace bp::core {

// Returns whether a tensor of the call that `key` was read from has a layout of the backend's own.
bool has_own_layouts(const OpRow& row, const Key& key);

// Returns why no claim of `kernel` takes the call with its layouts. Returns "" if the claims take
// it, or if no tensor has a layout of the backend's own. `args` is a frame that fits the kernel.
std::string own_layouts_refusal(const OpRow& row, const bp_kernel& kernel, const void* args);

// Returns whether `kernel` takes an argument in layouts alone, and not by strides.
bool requires_layouts(const bp_kernel& kernel);

// Returns the first claim of `kernel` that takes argument `index` in layouts alone; NULL if strides
// serve there too.
const bp_layout_claim* required_claim(const bp_kernel& kernel, uint32_t index);

// Returns whether the host can make the layout of a claim for any tensor.
bool is_described(const bp_layout_claim& claim);

// Returns why a tensor by strides is refused for which the host cannot make the layout of `claim`.
std::string strides_refusal(const bp_kernel& kernel, const bp_layout_claim& claim);

// Returns a text such as "ggml.q4_0" or "TILED of 16x16".
std::string claim_text(const bp_layout_claim& claim);

// Returns a text such as "a and b in TILED of 32x32" for the arguments that the kernel takes in
// layouts alone.
std::string required_text(const OpRow& row, const bp_kernel& kernel);

// Returns why what the kernel claims about layouts cannot be used, or "" if it can.
std::string layout_claims_defect(const bp_kernel& kernel);

}  // namespace bp::core
