#include "kernels/kernels.hpp"

namespace acme_opencl {

std::span<const bp_kernel* const> all_kernels() {
  static constexpr const bp_kernel* kKernels[] = {
#define ACME_KERNEL(name) &name,
#include "kernels/kernels.def"
#undef ACME_KERNEL
  };
  return kKernels;
}

}  // namespace acme_opencl
