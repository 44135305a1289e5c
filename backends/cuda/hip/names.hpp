// CUDA's names for AMD's GPUs: each name of CUDA that this backend uses stands here for its
// equivalent in HIP. It is all that the kernels need to compile with hipcc, from the same sources
// as for NVIDIA's GPUs. README.md says what is compiled so, and what is not.
//
// Rules
// - Names are types, constants and functions. There is one macro, for an attribute of parameters
//   that HIP does not have.
// - A warp has 32 lanes, as the kernels assume. So the device is one of RDNA, whose wavefronts have
//   32 lanes by default. On GPUs whose wavefronts have 64 lanes (gfx9), shuffles and ballots would
//   mix the lanes of two warps, and the code below does not compile.
// - HIP has no masks for the lanes of a shuffle. The kernels always name all lanes of a warp.
#pragma once

#include <hip/hip_runtime_api.h>

#ifdef __HIP__
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#endif

#include <cstdint>

// ---- The runtime, on the host -------------------------------------------------------------------

using cudaError_t = hipError_t;
using cudaStream_t = hipStream_t;
using cudaEvent_t = hipEvent_t;
using cudaGraph_t = hipGraph_t;
using cudaGraphExec_t = hipGraphExec_t;
using cudaMemPool_t = hipMemPool_t;
using cudaMemPoolProps = hipMemPoolProps;
using cudaMemPoolAttr = hipMemPoolAttr;
using cudaMemAccessDesc = hipMemAccessDesc;
using cudaMemcpyKind = hipMemcpyKind;
using cudaPointerAttributes = hipPointerAttribute_t;
using cudaDeviceAttr = hipDeviceAttribute_t;
using cudaFuncAttribute = hipFuncAttribute;
using cudaStreamCallback_t = hipStreamCallback_t;
using cudaStreamCaptureStatus = hipStreamCaptureStatus;
using cudaStreamCaptureMode = hipStreamCaptureMode;
using cudaHostFn_t = hipHostFn_t;

// HIP 5.7 answers some questions by attributes of a device that CUDA answers by its properties.
struct cudaDeviceProp : hipDeviceProp_t {
  size_t sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int memoryPoolsSupported;
  hipUUID uuid;
};

// HIP gives these results in two parameters.
struct cudaGraphExecUpdateResultInfo {
  hipGraphExecUpdateResult result;
  hipGraphNode_t errorNode;
};

// The driver of CUDA has a type of its own for errors. HIP has one library and one type, but the
// table of functions tells the two apart by this type.
#undef CUDA_SUCCESS  // A header of HIP makes it hipSuccess.
using CUdevice = hipDevice_t;
using CUcontext = hipCtx_t;
using CUstreamCaptureMode = hipStreamCaptureMode;
enum CUresult : unsigned {
  CUDA_SUCCESS = hipSuccess,
  CUDA_ERROR_NOT_INITIALIZED = hipErrorNotInitialized,
};

inline constexpr cudaError_t cudaSuccess = hipSuccess;

// The types of NVIDIA's libraries, in headers of this backend. Nothing has a value of them here.
using cublasLtHandle_t = struct NoCublasLt*;
struct cublasLtMatmulAlgo_t {};
using cudnnHandle_t = struct NoCudnn*;
using cudnnBackendDescriptor_t = struct NoCudnnDescriptor*;

// ---- Device code --------------------------------------------------------------------------------

#ifdef __HIP__

// Parameters of a kernel are constant memory in any case.
#define __grid_constant__

using __nv_bfloat16 = __hip_bfloat16;

namespace bp::cuda {

#ifdef __HIP_DEVICE_COMPILE__
static_assert(__AMDGCN_WAVEFRONT_SIZE == 32,
              "a warp has 32 lanes: compile for a GPU whose wavefronts have as many");
#endif

inline constexpr int kLanesOfWarp = 32;

__host__ __device__ inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return __float2bfloat16(x);
}

// ---- A warp ----

template <typename T>
__device__ __forceinline__ T __shfl_sync(unsigned, T value, int lane) {
  return static_cast<T>(__shfl(value, lane, kLanesOfWarp));
}
template <typename T>
__device__ __forceinline__ T __shfl_xor_sync(unsigned, T value, int mask) {
  return static_cast<T>(__shfl_xor(value, mask, kLanesOfWarp));
}
template <typename T>
__device__ __forceinline__ T __shfl_up_sync(unsigned, T value, unsigned distance) {
  return static_cast<T>(__shfl_up(value, distance, kLanesOfWarp));
}

// HIP returns 64 bits. The upper ones are 0.
__device__ __forceinline__ unsigned __ballot_sync(unsigned, bool is_set) {
  return static_cast<unsigned>(__ballot(is_set ? 1 : 0));
}

// Orders the accesses of the lanes to memory. The lanes of a wavefront run together, so the
// barrier only keeps the compiler from moving accesses across it.
__device__ __forceinline__ void __syncwarp(unsigned = 0xFFFFFFFFu) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// ---- Functions of numbers ----

using ::erfinv;
__device__ __forceinline__ float erfinv(float x) { return ::erfinvf(x); }

}  // namespace bp::cuda

#endif
