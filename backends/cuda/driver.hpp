// CUDA as this backend calls it: a table of functions, which are the real ones or those of a test.
//
//   check(driver, driver.cudaMemcpyAsync(dst, src, size_bytes, kind, stream), "copy");
//
// The runtime is linked in and opens the driver when it is first called. Functions of the driver
// itself are looked up in it. Without a driver the table is complete, and its entries fail.
#pragma once

#include <string>

#include "backends/cuda/dialect.hpp"
#include "backplane/shell/boundary.hpp"

namespace bp::cuda {

// The types of NVML, because some toolkits lack its header.
using NvmlDevice = struct nvmlDevice_st*;
struct NvmlPciInfo {
  char short_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
constexpr int kNvmlSuccess = 0, kNvmlNotSupported = 3, kNvmlAbsent = 12;  // nvmlReturn_t.

struct Driver {
  // NOLINTBEGIN(bugprone-macro-parentheses): these are declarations.
#define BP_RUNTIME(name, parameters) cudaError_t(*name) parameters = nullptr;
#define BP_DRIVER(name, symbol, parameters) CUresult(*name) parameters = nullptr;
#define BP_NVML(name, symbol, parameters) int(*name) parameters = nullptr;
#include "backends/cuda/driver.def"
  // NOLINTEND(bugprone-macro-parentheses)

  // These functions cannot fail. A name is the one in the header, such as
  // "cudaErrorIllegalAddress".
  const char* (*cudaGetErrorName)(cudaError_t error) = nullptr;
  const char* (*cudaGetErrorString)(cudaError_t error) = nullptr;

  // Why the machine has no driver, or a driver that lacks functions; "" if it has all of them.
  std::string missing;
};

// Returns the functions of the CUDA that is installed on this machine.
Driver real_driver();

// Lets the functions of BP_RELAXED change the mode of the calling thread while they run, so that
// they neither fail nor break a capture of another library in global mode, such as one of PyTorch.
// All tables of a process have the same functions.
void relax_captures(Driver& driver);

// The meaning of a CUDA failure for a host.
enum class Failure {
  kSubmission,  // The call did nothing, and the device goes on.
  kLoss,        // The context is lost: every later call fails.
};
Failure failure_of(cudaError_t error);
bp_status status_of(cudaError_t error);
cudaError_t runtime_error(CUresult result);

// Returns a text such as "copy: cudaErrorInvalidValue (invalid argument)".
std::string failure_text(const Driver& driver, cudaError_t error, const char* what);

// A failed call of CUDA, with its class of failure.
class CudaError : public StatusError {
 public:
  CudaError(const Driver& driver, cudaError_t error, const char* what)
      : StatusError(status_of(error), failure_text(driver, error, what)), error_(error) {}
  cudaError_t error() const { return error_; }

 private:
  cudaError_t error_;
};

// Throws CudaError unless the call named `what` succeeded.
inline void check(const Driver& driver, cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  driver.cudaGetLastError();  // Clears the thread's error; a sticky one stays.
  throw CudaError(driver, error, what);
}
inline void check(const Driver& driver, CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  throw CudaError(driver, runtime_error(result), what);
}

}  // namespace bp::cuda
