// Declares every kernel of this folder: those of kernels.def, and one for each reduction with a
// formula (reduction.cpp). Kernels of element-wise ops are emitted (elementwise_list.hpp).
#pragma once

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

inline constexpr const bp_kernel* kKernels[] = {
#define BP_KERNEL(name) &(name),
#include "backends/vulkan/kernels/kernels.def"
#undef BP_KERNEL
#define BP_REDUCTION(name, Name, id, dtypes) &kReduction##Name,
#include "reductions.def"
};

}  // namespace bp::vulkan
