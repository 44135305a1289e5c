// Every kernel of this folder. Kernels of element-wise ops are emitted (elementwise_list.hpp).
#pragma once

#include "backplane/kernel.h"

namespace bp::cuda {

#define BP_KERNEL(name) extern const bp_kernel name;
#include "backends/cuda/kernels/kernels.def"
#undef BP_KERNEL

inline constexpr const bp_kernel* kKernels[] = {
#define BP_KERNEL(name) &(name),
#include "backends/cuda/kernels/kernels.def"
#undef BP_KERNEL
};

}  // namespace bp::cuda
