// Decides which kernels take tensors in a layout of the backend's own.
//
// Claims are about strides only. A kernel takes a tensor in a layout of the backend's own if it
// prefers an equal layout for that argument. The backend's table of layouts tells what the kernel
// prefers for this call.
#pragma once

#include <string>

#include "registry/calls/call.hpp"

namespace bp::core {

struct Target;

// Returns whether a tensor of the call that `key` was read from has a layout of the backend's own.
bool has_own_layouts(const OpRow& row, const Key& key);

// Returns why `kernel` does not take the call with its layouts. Returns "" if the kernel takes it,
// or if no tensor has a layout of the backend's own. `args` is a frame that fits the kernel.
std::string own_layouts_refusal(const Target& target, const OpRow& row, const bp_kernel& kernel,
                                const void* args);

}  // namespace bp::core
