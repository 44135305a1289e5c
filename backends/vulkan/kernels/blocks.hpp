// Tensors in the blocks of a file (backplane/block_formats.def), and their conversions.
#pragma once

#include "backends/vulkan/kernels/submit.hpp"
#include "backplane/shell/block_layout.hpp"

namespace bp::vulkan {

// Returns the format of a tensor in blocks, or NULL if its layout is no such layout of this
// backend.
const BlockFormat* format_of(const Env& env, const bp_tensor& tensor);

// Throws StatusError of BP_UNSUPPORTED if a conversion encodes into a format that is only decoded.
void check_encodes(const Conversion& conversion);

// Submits a conversion that check_encodes() took.
bp_status submit_conversion(Launch& launch, const Conversion& conversion);

}  // namespace bp::vulkan
