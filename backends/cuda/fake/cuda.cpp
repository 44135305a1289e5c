// The table of the fake CUDA, its devices and their contexts.
#include "backends/cuda/fake/cuda.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backends/cuda/fake/entries.hpp"

namespace bp::cuda::fake {

// NOLINTBEGIN(readability-identifier-naming)
namespace entries {

Context* context_of(int ordinal) {
  State& s = state();
  if (ordinal < 0 || ordinal >= static_cast<int>(s.contexts.size())) return nullptr;
  return &s.contexts[static_cast<size_t>(ordinal)];
}

// ---- Devices ------------------------------------------------------------------------------------

cudaError_t cudaDriverGetVersion(int* version) {
  *version = state().setup.driver_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = state().setup.device_count;
  if (state().setup.driver_version < CUDART_VERSION) return cudaErrorInsufficientDriver;
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (context_of(device) == nullptr) return cudaErrorInvalidDevice;
  std::memset(p, 0, sizeof(*p));
  std::snprintf(p->name, sizeof(p->name), "fake accelerator %d", device);
  std::memset(&p->uuid, 0x40 + device, sizeof(p->uuid));
  p->totalGlobalMem = state().setup.memory_bytes;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = static_cast<size_t>(state().setup.shared_kib) << 10;
  p->sharedMemPerMultiprocessor = static_cast<size_t>(state().setup.shared_kib + 1) << 10;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->multiProcessorCount = 4;
  p->major = state().setup.major;
  p->memoryBusWidth = 128;
  p->l2CacheSize = 1 << 20;
  p->memoryPoolsSupported = state().setup.has_pools ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1'000'000;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned bus = 0;
  if (std::sscanf(text, "%*x:%x", &bus) != 1 || context_of(static_cast<int>(bus)) == nullptr) {
    return cudaErrorInvalidDevice;
  }
  *device = static_cast<int>(bus);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

// ---- Contexts -----------------------------------------------------------------------------------

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (context_of(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const std::lock_guard lock(state().mutex);
  Context* const found = context_of(device);
  ++found->uses;
  *context = reinterpret_cast<CUcontext>(found);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  const std::lock_guard lock(state().mutex);
  --context_of(device)->uses;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* is_active) {
  const std::lock_guard lock(state().mutex);
  *flags = 0;
  *is_active = context_of(device)->uses > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(current());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  current() = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(capture_mode(), *mode);
  return CUDA_SUCCESS;
}

// ---- NVML ---------------------------------------------------------------------------------------

int nvmlInit() {
  if (!state().setup.has_nvml) return kNvmlAbsent;
  ++state().nvml_uses;
  return kNvmlSuccess;
}

int nvmlShutdown() {
  --state().nvml_uses;
  return kNvmlSuccess;
}

int nvmlSystemGetCudaDriverVersion(int* version) {
  *version = state().setup.driver_version;
  return kNvmlSuccess;
}

int nvmlDeviceGetCount(unsigned* count) {
  *count = static_cast<unsigned>(state().setup.device_count);
  return kNvmlSuccess;
}

int nvmlDeviceGetHandleByIndex(unsigned index, NvmlDevice* device) {
  *device = reinterpret_cast<NvmlDevice>(context_of(static_cast<int>(index)));
  return kNvmlSuccess;
}

int ordinal_of(NvmlDevice device) { return reinterpret_cast<Context*>(device)->ordinal; }

int nvmlDeviceGetName(NvmlDevice device, char* text, unsigned size) {
  std::snprintf(text, size, "fake accelerator %d", ordinal_of(device));
  return kNvmlSuccess;
}

int nvmlDeviceGetUUID(NvmlDevice device, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-%d0000000-fa4e", ordinal_of(device));
  return kNvmlSuccess;
}

int nvmlDeviceGetPciInfo(NvmlDevice device, NvmlPciInfo* info) {
  std::memset(info, 0, sizeof(*info));
  std::snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02X:00.0", ordinal_of(device));
  return kNvmlSuccess;
}

int nvmlDeviceGetCudaComputeCapability(NvmlDevice, int* major, int* minor) {
  *major = state().setup.major;
  *minor = 0;
  return kNvmlSuccess;
}

int nvmlDeviceGetMigMode(NvmlDevice device, unsigned* current, unsigned* pending) {
  *current = *pending = state().setup.is_in_parts && ordinal_of(device) == 0 ? 1 : 0;
  return kNvmlSuccess;
}

}  // namespace entries
// NOLINTEND(readability-identifier-naming)

namespace {

// The name of an entry, as a template argument.
template <size_t kSize>
struct Name {
  // NOLINTNEXTLINE(google-explicit-constructor): string literals convert.
  constexpr Name(const char (&text)[kSize]) { std::copy_n(text, kSize, value); }
  char value[kSize];
};

// An entry of the table. It counts the call, fails if fail_call() asked for it, and else calls the
// function of the same name above.
template <typename Function>
struct Entry;
template <typename Result, typename... Args>
struct Entry<Result (*)(Args...)> {
  template <Result (*kFunction)(Args...), Name kName, bool kIsRelaxed = false>
  static Result call(Args... args) {
    const std::string_view name = kName.value;
    if (kIsRelaxed && !state().may_call_beside_captures(kName.value)) {
      return static_cast<Result>(cudaErrorStreamCaptureUnsupported);
    }
    // The other functions may be called on any thread, before there is a context.
    const bool needs_context = name.starts_with("cuda") && !is_free(name);
    const int error = state().enter(kName.value, needs_context);
    return error == 0 ? kFunction(args...) : static_cast<Result>(error);
  }

  static bool is_free(std::string_view name) {
    return name.starts_with("cudaGet") || name.starts_with("cudaDeviceGetAttribute") ||
           name.starts_with("cudaDeviceGetPCI") || name.starts_with("cudaDeviceGetByPCI") ||
           name.starts_with("cudaDeviceCan") || name.starts_with("cudaDriverGet");
  }
};

}  // namespace

Driver driver() {
  Driver table;
#define BP_RUNTIME(function, parameters) \
  table.function = Entry<decltype(table.function)>::call<entries::function, #function>;
#define BP_RELAXED(function, parameters) \
  table.function = Entry<decltype(table.function)>::call<entries::function, #function, true>;
#define BP_DRIVER(function, symbol, parameters) \
  table.function = Entry<decltype(table.function)>::call<entries::function, #function>;
#define BP_NVML(function, symbol, parameters) \
  table.function = Entry<decltype(table.function)>::call<entries::function, #function>;
#include "backends/cuda/driver.def"
  table.cudaGetErrorName = &::cudaGetErrorName;
  table.cudaGetErrorString = &::cudaGetErrorString;
  relax_captures(table);
  return table;
}

}  // namespace bp::cuda::fake
