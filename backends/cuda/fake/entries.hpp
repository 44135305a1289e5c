// One definition per entry of the table of the CUDA for tests, by the same name.
#pragma once

#include "backends/cuda/fake/state.hpp"

// NOLINTBEGIN(readability-identifier-naming)
namespace bp::cuda::fake::entries {

#define BP_RUNTIME(name, parameters) cudaError_t name parameters;
#define BP_DRIVER(name, symbol, parameters) CUresult name parameters;
#define BP_NVML(name, symbol, parameters) int name parameters;
#include "backends/cuda/driver.def"

// NULL if there is no such device.
Context* context_of(int ordinal);

}  // namespace bp::cuda::fake::entries
// NOLINTEND(readability-identifier-naming)
