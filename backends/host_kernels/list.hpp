// Every kernel of this folder, for the backends that register them (kernels.def). The kernels of
// the element-wise ops and of the reductions are in generated lists.
#pragma once

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/reduce.hpp"
#include "elementwise_list.hpp"

namespace bp::kernels {

#define BP_KERNEL(name) extern const bp_kernel name;
#define BP_LIBRARY_KERNEL(name) extern const bp_kernel name;
#define BP_CPU_KERNEL(name) extern const bp_kernel name;
#include "backends/host_kernels/kernels.def"
#undef BP_KERNEL
#undef BP_LIBRARY_KERNEL
#undef BP_CPU_KERNEL

inline constexpr const bp_kernel* kKernels[] = {
#define BP_KERNEL(name) &(name),
#define BP_LIBRARY_KERNEL(name)
#define BP_CPU_KERNEL(name)
#include "backends/host_kernels/kernels.def"
#undef BP_KERNEL
#undef BP_LIBRARY_KERNEL
#undef BP_CPU_KERNEL
#define BP_REDUCTION(name, Name, OP, dtypes) &k##Name,
#include "reductions.def"
};

// The kernels that need oneDNN. A build without oneDNN lacks them.
inline constexpr const bp_kernel* kLibraryKernels[] = {
#define BP_KERNEL(name)
#define BP_LIBRARY_KERNEL(name) &(name),
#define BP_CPU_KERNEL(name)
#include "backends/host_kernels/kernels.def"
#undef BP_KERNEL
#undef BP_LIBRARY_KERNEL
#undef BP_CPU_KERNEL
};

// The kernels of the cpu backend alone.
inline constexpr const bp_kernel* kCpuKernels[] = {
#define BP_KERNEL(name)
#define BP_LIBRARY_KERNEL(name)
#define BP_CPU_KERNEL(name) &(name),
#include "backends/host_kernels/kernels.def"
#undef BP_KERNEL
#undef BP_LIBRARY_KERNEL
#undef BP_CPU_KERNEL
};

}  // namespace bp::kernels
