// The runtime and the device code of CUDA, by CUDA's names. Every file of this backend that uses
// one of these names includes this header, and no header of CUDA itself. NVIDIA's headers define
// the names, or hip/names.hpp does for AMD's GPUs.
#pragma once

// Whether the names stand for those of HIP.
#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
#define BP_IS_HIP 1
#else
#define BP_IS_HIP 0
#endif

#if BP_IS_HIP

#include "backends/cuda/hip/names.hpp"

#else

#include <cuda.h>
#include <cuda_runtime_api.h>

#if defined(__CUDACC__) || defined(BACKPLANE_CUDA_EMULATED)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#endif

// Whether the compiler now compiles for a device and not for the host.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define BP_IS_DEVICE_CODE 1
#else
#define BP_IS_DEVICE_CODE 0
#endif
