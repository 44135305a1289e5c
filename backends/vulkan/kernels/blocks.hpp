// Tensors in the blocks of a file (backplane/block_formats.def), and their conversions.
#pragma once

#include "backends/vulkan/kernels/submit.hpp"
#include "backplane/layout.h"
#include "backplane/shell/block_layout.hpp"

namespace bp::vulkan {

// The claim of a kernel whose argument 1, the weight, may lie in blocks of any format.
inline constexpr bp_layout_claim kBlocksOfWeight{.struct_size = sizeof(bp_layout_claim),
                                                 .struct_type = BP_STRUCT_LAYOUT_CLAIM,
                                                 .arguments = 0b10,
                                                 .kind = BP_LAYOUT_KIND_QUANTIZED};
inline constexpr const bp_layout_claim* kWeightInBlocks[] = {&kBlocksOfWeight};

// Returns the format of a tensor in blocks, or NULL if its layout is no such layout of this
// backend.
const BlockFormat* format_of(const Env& env, const bp_tensor& tensor);

// Throws StatusError of BP_UNSUPPORTED if a conversion encodes into a format that is only decoded.
void check_encodes(const Conversion& conversion);

// Submits a conversion that check_encodes() took.
bp_status submit_conversion(Launch& launch, const Conversion& conversion);

}  // namespace bp::vulkan
