// Every kernel of this folder. Those of one op stand in the order in which they are tried.
#pragma once

#include <array>

#include "backplane/kernel.h"

namespace bp::cuda {

inline constexpr std::array<const bp_kernel*, 0> kKernels{};

}  // namespace bp::cuda
