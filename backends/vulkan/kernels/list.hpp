// Every kernel of this folder. Kernels of element-wise ops are emitted (elementwise_list.hpp).
#pragma once

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

inline constexpr const bp_kernel* kKernels[] = {
#define BP_KERNEL(name) &(name),
#include "backends/vulkan/kernels/kernels.def"
#undef BP_KERNEL
};

}  // namespace bp::vulkan
