#include "backends/cuda/backend.hpp"
#include "backends/cuda/kernels/list.hpp"

namespace bp::cuda {

std::span<const bp_kernel* const> kernel_list() { return kKernels; }

}  // namespace bp::cuda
