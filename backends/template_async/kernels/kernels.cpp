#include "kernels/kernels.hpp"

namespace acme_async {

std::span<const bp_kernel* const> all_kernels() {
  static constexpr const bp_kernel* kKernels[] = {&kAdd};
  return kKernels;
}

}  // namespace acme_async
