// Wrapped addresses, and registered host memory.
#include <cstddef>

#include "backends/cuda/memory.hpp"

namespace bp::cuda {

std::unique_ptr<Buffer> MemoryTraits::wrap(Device& d, uint64_t address, uint64_t size_bytes) {
  auto b = std::make_unique<Buffer>(d, BufferKind::kWrapped, size_bytes);
  b->address = address;
  return b;
}

std::unique_ptr<Buffer> MemoryTraits::register_host(Device& d, void* memory, uint64_t size_bytes) {
  auto b = std::make_unique<Buffer>(d, BufferKind::kRegistered, size_bytes);
  b->address = reinterpret_cast<uintptr_t>(memory);
  if (size_bytes == 0) return b;
  const Driver& driver = d.driver();
  const Current current(d);
  const cudaError_t error = driver.cudaHostRegister(
      memory, size_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error == cudaErrorHostMemoryAlreadyRegistered) {
    driver.cudaGetLastError();
    refuse(BP_ALREADY_EXISTS, "register_host: a part of the memory is registered already");
  }
  check(driver, error, "register_host");
  b->base = memory;
  b->host = memory;
  void* address = nullptr;
  const cudaError_t found = driver.cudaHostGetDevicePointer(&address, memory, 0);
  if (found != cudaSuccess) driver.cudaHostUnregister(memory);
  check(driver, found, "cudaHostGetDevicePointer");
  b->address = reinterpret_cast<uintptr_t>(address);
  return b;
}

}  // namespace bp::cuda
