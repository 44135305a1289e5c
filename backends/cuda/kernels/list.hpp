// Declares every kernel of this folder: those of kernels.def, and one for each reduction with a
// formula (reduction.cu). Kernels of element-wise ops are emitted (elementwise_list.hpp).
#pragma once

#include "backplane/kernel.h"

namespace bp::cuda {

#define BP_KERNEL(name) extern const bp_kernel name;
#include "backends/cuda/kernels/kernels.def"
#undef BP_KERNEL
#define BP_REDUCTION(name, Name, id, dtypes) extern const bp_kernel kReduction##Name;
#include "reductions.def"

inline constexpr const bp_kernel* kKernels[] = {
#define BP_KERNEL(name) &(name),
#include "backends/cuda/kernels/kernels.def"
#undef BP_KERNEL
#define BP_REDUCTION(name, Name, id, dtypes) &kReduction##Name,
#include "reductions.def"
};

}  // namespace bp::cuda
