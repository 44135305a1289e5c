// Which of a backend's kernels takes a frame: what a host asks of claims, asked by the backend
// itself when it compiles programs.
#pragma once

#include <span>
#include <string>

#include "backplane/kernel.h"
#include "backplane/shell/frame.hpp"

namespace bp {

// The first class that describes how the elements of a tensor lie.
bp_layout_flags layout_class(const bp_tensor& tensor);

// The best of `kernels`, which are in the order they are tried, for a frame whose tensors need no
// buffer. `is_in_place`: an output will be the memory of an input. NULL if none takes it;
// `out_reason` then says why the last one of the op does not.
const bp_kernel* choose_kernel(std::span<const bp_kernel* const> kernels, bp_device* device,
                               bp_launch_flags flags, const OwnedFrame& frame, bool is_in_place,
                               bp_reason& out_reason);

}  // namespace bp
