// Wrapped addresses, and registered host memory.
#include <cstddef>
#include <limits>

#include "backends/cuda/memory.hpp"

namespace bp::cuda {
namespace {

void check_addresses(uint64_t address, uint64_t size_bytes, const char* call) {
  if (address == 0 && size_bytes > 0) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": the address is 0");
  }
  if (size_bytes > std::numeric_limits<uint64_t>::max() - address) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + std::to_string(size_bytes) +
                                    " bytes at address " + std::to_string(address) +
                                    " leave the address space");
  }
}

std::unique_ptr<Buffer> make_buffer(Device& d, BufferKind kind, uint64_t address,
                                    uint64_t size_bytes) {
  auto b = std::make_unique<Buffer>(d, kind, size_bytes);
  b->address = address;
  return b;
}

}  // namespace

bp_status memory_wrap_address(void* self, bp_device* handle, uint64_t address, uint64_t size_bytes,
                              bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "wrap_address");
    require(out_buffer, "wrap_address: out_buffer");
    check_addresses(address, size_bytes, "wrap_address");
    *out_buffer = lend(make_buffer(d, BufferKind::kWrapped, address, size_bytes), "wrap_address");
    return BP_OK;
  });
}

bp_status memory_address_info(void* self, uint64_t address, bp_address_info* out_info) {
  return entry(self, [&](const Instance& i) -> bp_status {
    return find_address<Device>(i.cards, address, out_info);
  });
}

bp_status memory_register_host(void* self, bp_device* handle, void* memory, uint64_t size_bytes,
                               bp_buffer** out_buffer) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "register_host");
    require(out_buffer, "register_host: out_buffer");
    if (size_bytes > 0) require(memory, "register_host: memory");
    check_addresses(reinterpret_cast<uintptr_t>(memory), size_bytes, "register_host");
    auto b =
        make_buffer(d, BufferKind::kRegistered, reinterpret_cast<uintptr_t>(memory), size_bytes);
    const Driver& driver = d.driver();
    if (size_bytes > 0) {
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
    }
    *out_buffer = lend(std::move(b), "register_host");
    return BP_OK;
  });
}

bp_status memory_unregister_host(void* self, bp_buffer* handle) {
  return entry(self, [&](const Instance&) -> bp_status {
    Buffer* const b = buffer_or_null(handle);
    if (b == nullptr || b->kind != BufferKind::kRegistered) {
      refuse(BP_INVALID_ARGUMENT,
             "unregister_host: buffer is NULL or none that register_host() gave");
    }
    end_handle(b)->memory().end();
    return BP_OK;
  });
}

}  // namespace bp::cuda
