#include <algorithm>
#include <array>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "elementwise_list.hpp"

namespace bp::cuda {

std::span<const bp_kernel* const> kernel_list() {
  static constexpr auto kAll = [] {
    std::array<const bp_kernel*, std::size(kElementwiseKernels) + std::size(kKernels)> all{};
    const auto rest = std::ranges::copy(kElementwiseKernels, all.begin()).out;
    std::ranges::copy(kKernels, rest);
    return all;
  }();
  return kAll;
}

}  // namespace bp::cuda
