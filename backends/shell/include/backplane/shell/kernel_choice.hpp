// Chooses the kernel of a backend for a frame. A backend that compiles programs reads the claims of
// its kernels here as a host does.
#pragma once

#include <span>
#include <string>

#include "backplane/kernel.h"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/resolved.hpp"

namespace bp {

// Returns the first class of layouts that describes how the elements of a tensor lie.
bp_layout_flags layout_class(const bp_tensor& tensor);

// Returns whether the kernel claims the layout that a tensor of the argument has. A claim for a
// list holds for each of its tensors.
bool claims_layout(const bp_kernel& kernel, const FrameArgument& argument, const bp_tensor& tensor);

// Returns the first kernel of the backend that takes a frame, whose tensors need no buffer.
// `is_in_place` says that an output will be the memory of an input. If no kernel takes the frame,
// returns NULL, and `out_reason` says why the last kernel of the op does not.
const bp_kernel* choose_kernel(const CompilerBackend& backend, bp_device* device,
                               bp_launch_flags flags, const OwnedFrame& frame, bool is_in_place,
                               std::string& out_reason);

}  // namespace bp
