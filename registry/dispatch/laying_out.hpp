// Runs calls with tensors by strides on kernels that take layouts alone (BP_LAYOUT_CLAIM_REQUIRED):
// each such tensor is converted to the layout that the kernel's claim describes, the kernel runs,
// and results are converted back.
#pragma once

#include <string>

#include "registry/dispatch/submit.hpp"

namespace bp::core {

// Returns whether `kernel` takes an argument in layouts alone that the call with this key gives by
// strides. An inline scalar counts if the kernel takes it as a tensor alone.
bool needs_layouts(const OpRow& row, const bp_kernel& kernel, const Key& key);

// Returns why the host cannot make the layouts that such a call needs, or "" if it can or need not.
std::string laying_out_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                               const Key& key);

// Returns a text such as "a, b and y are converted to TILED of 32x32", for a call that needs
// layouts.
std::string laying_out_text(const OpRow& row, const bp_kernel& kernel, const Key& key);

// Returns what supports() of `kernel` says about a call, whose tensors it sees in the layouts that
// it will get. Returns "" if it accepts. `frame` is one that fits the kernel.
std::string supports_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                             bp_launch_flags flags, const void* frame);

}  // namespace bp::core
