// Declares the functions of the fake CUDA. Each entry of its table has a function of the same name.
#pragma once

#include "backends/cuda/fake/state.hpp"

// NOLINTBEGIN(readability-identifier-naming)
namespace bp::cuda::fake::entries {

#define BP_RUNTIME(name, parameters) cudaError_t name parameters;
#define BP_DRIVER(name, symbol, parameters) CUresult name parameters;
#define BP_NVML(name, symbol, parameters) int name parameters;
#include "backends/cuda/driver.def"

// Returns the context of a device, or NULL if there is no such device.
Context* context_of(int ordinal);

}  // namespace bp::cuda::fake::entries
// NOLINTEND(readability-identifier-naming)
