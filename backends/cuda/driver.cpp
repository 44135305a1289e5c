#include "backends/cuda/driver.hpp"

#include <dlfcn.h>

#include <atomic>
#include <type_traits>

namespace bp::cuda {
namespace {

// Stands for functions whose library is missing or lacks them.
template <typename... Args>
CUresult absent(Args...) {
  return CUDA_ERROR_NOT_INITIALIZED;
}
template <typename... Args>
int absent_in_nvml(Args...) {
  return kNvmlAbsent;
}

template <typename... Args>
void look_up(void* library, const char* symbol, CUresult (*&entry)(Args...), std::string& missing) {
  entry = absent<Args...>;
  if (library == nullptr) return;
  void* const found = dlsym(library, symbol);
  if (found != nullptr) {
    entry = reinterpret_cast<CUresult (*)(Args...)>(found);
  } else if (missing.empty()) {
    missing =
        std::string("the NVIDIA driver is too old: it has no ") + symbol + "; install a newer one";
  }
}

template <typename... Args>
void look_up(void* library, const char* symbol, int (*&entry)(Args...)) {
  void* const found = library == nullptr ? nullptr : dlsym(library, symbol);
  entry = found == nullptr ? absent_in_nvml<Args...> : reinterpret_cast<int (*)(Args...)>(found);
}

std::atomic<decltype(Driver::cuThreadExchangeStreamCaptureMode)> exchange_mode = nullptr;

// A function of the table that runs in the relaxed mode. The mode is of the thread, and the
// driver's function makes no context, unlike that of the runtime.
template <auto kEntry, typename Function>
struct Relaxed;
template <auto kEntry, typename... Args>
struct Relaxed<kEntry, cudaError_t (*)(Args...)> {
  static inline std::atomic<cudaError_t (*)(Args...)> plain = nullptr;

  static cudaError_t call(Args... args) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const auto exchange = exchange_mode.load();
    const bool is_relaxed = exchange(&mode) == CUDA_SUCCESS;
    const cudaError_t error = plain.load()(args...);
    if (is_relaxed) exchange(&mode);
    return error;
  }
};

template <auto kEntry>
void relax(Driver& driver) {
  using Call = Relaxed<kEntry, std::remove_reference_t<decltype(driver.*kEntry)>>;
  Call::plain = driver.*kEntry;
  driver.*kEntry = &Call::call;
}

}  // namespace

void relax_captures(Driver& driver) {
  exchange_mode = driver.cuThreadExchangeStreamCaptureMode;
#define BP_RUNTIME(name, parameters)
#define BP_RELAXED(name, parameters) relax<&Driver::name>(driver);
#define BP_DRIVER(name, symbol, parameters)
#define BP_NVML(name, symbol, parameters)
#include "backends/cuda/driver.def"
}

Driver real_driver() {
  Driver driver;
#define BP_RUNTIME(name, parameters) driver.name = &::name;
#define BP_DRIVER(name, symbol, parameters)
#define BP_NVML(name, symbol, parameters)
#include "backends/cuda/driver.def"
  driver.cudaGetErrorName = &::cudaGetErrorName;
  driver.cudaGetErrorString = &::cudaGetErrorString;

  // The driver is never closed, because the runtime uses it too, and its threads may run.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    driver.missing = "there is no NVIDIA driver on this machine: libcuda.so.1 was not found";
  }
#define BP_RUNTIME(name, parameters)
#define BP_DRIVER(name, symbol, parameters) look_up(library, symbol, driver.name, driver.missing);
#define BP_NVML(name, symbol, parameters) look_up(nvml, symbol, driver.name);
#include "backends/cuda/driver.def"
  relax_captures(driver);
  return driver;
}

// Since CUDA 10.1 both libraries use the same numbers for errors that the runtime knows.
cudaError_t runtime_error(CUresult result) { return static_cast<cudaError_t>(result); }

Failure failure_of(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsClientTerminated:
    case cudaErrorMpsRpcFailure:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return Failure::kLoss;
    default:
      return Failure::kSubmission;
  }
}

bp_status status_of(cudaError_t error) {
  if (failure_of(error) == Failure::kLoss) return BP_DEVICE_LOST;
  switch (error) {
    case cudaSuccess:
      return BP_OK;
    case cudaErrorMemoryAllocation:
      return BP_OUT_OF_MEMORY;
    case cudaErrorNotSupported:
    case cudaErrorNotPermitted:
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable:
      return BP_UNSUPPORTED;
    case cudaErrorTimeout:
      return BP_TIMEOUT;
    default:
      return BP_INTERNAL;
  }
}

std::string failure_text(const Driver& driver, cudaError_t error, const char* what) {
  return std::string(what) + ": " + driver.cudaGetErrorName(error) + " (" +
         driver.cudaGetErrorString(error) + ")";
}

}  // namespace bp::cuda
