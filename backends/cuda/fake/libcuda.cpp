// A CUDA driver without a device. It takes code, and never runs it. cuDNN compiles its kernels for
// attention when it makes a plan, and gives them to the driver, so that installed_test.cpp can have
// plans made on a machine without a driver. It becomes a library of its own, libcuda.so.1.
namespace {

constexpr int kSuccess = 0, kNotInitialized = 3;
int code = 0;  // Its address stands for what was loaded.

}  // namespace

#define BP_EXPORT extern "C" __attribute__((visibility("default")))

// NOLINTBEGIN(readability-identifier-naming): the names are those of the driver.
BP_EXPORT int cuLibraryLoadData(void** out) {
  *out = &code;
  return kSuccess;
}
BP_EXPORT int cuLibraryGetKernel(void** out) {
  *out = &code;
  return kSuccess;
}
BP_EXPORT int cuKernelGetAttribute(int* out) {
  *out = 0;
  return kSuccess;
}
BP_EXPORT int cuKernelSetAttribute() { return kSuccess; }
BP_EXPORT int cuLibraryUnload() { return kSuccess; }

// cuDNN looks for these functions too, and calls none of them for a plan.
#define BP_UNUSED(name) \
  BP_EXPORT int name() { return kNotInitialized; }
BP_UNUSED(cuCtxGetCurrent)
BP_UNUSED(cuCtxGetDevice)
BP_UNUSED(cuCtxGetLimit)
BP_UNUSED(cuCtxPopCurrent)
BP_UNUSED(cuCtxPushCurrent)
BP_UNUSED(cuDeviceGet)
BP_UNUSED(cuDeviceGetAttribute)
BP_UNUSED(cuDeviceGetCount)
BP_UNUSED(cuDevicePrimaryCtxRelease)
BP_UNUSED(cuDevicePrimaryCtxReset)
BP_UNUSED(cuDevicePrimaryCtxRetain)
BP_UNUSED(cuDriverGetVersion)
BP_UNUSED(cuFuncGetAttribute)
BP_UNUSED(cuFuncSetAttribute)
BP_UNUSED(cuGetErrorName)
BP_UNUSED(cuGetErrorString)
BP_UNUSED(cuInit)
BP_UNUSED(cuLaunchCooperativeKernel)
BP_UNUSED(cuLaunchKernel)
BP_UNUSED(cuLaunchKernelEx)
BP_UNUSED(cuLibraryLoadFromFile)
BP_UNUSED(cuLinkAddData)
BP_UNUSED(cuLinkAddData_v2)
BP_UNUSED(cuLinkAddFile_v2)
BP_UNUSED(cuLinkComplete)
BP_UNUSED(cuLinkCreate)
BP_UNUSED(cuLinkCreate_v2)
BP_UNUSED(cuLinkDestroy)
BP_UNUSED(cuMemcpyDtoH_v2)
BP_UNUSED(cuModuleGetFunction)
BP_UNUSED(cuModuleGetGlobal_v2)
BP_UNUSED(cuModuleLoadData)
BP_UNUSED(cuModuleLoadDataEx)
BP_UNUSED(cuModuleLoadFatBinary)
BP_UNUSED(cuModuleUnload)
BP_UNUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
BP_UNUSED(cuOccupancyMaxPotentialClusterSize)
BP_UNUSED(cuStreamGetCtx)
BP_UNUSED(cuStreamSynchronize)
BP_UNUSED(cuTensorMapEncodeTiled)
// NOLINTEND(readability-identifier-naming)
