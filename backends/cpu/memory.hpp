// Buffers of the CPU backend: host memory, wherever it came from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "backplane/memory.h"
#include "backplane/shell/reservation.hpp"

namespace bp::cpu {

class Device;

constexpr uint32_t kBufferMagic = 0x62756666;

// Of the members that own memory at most one is set: a buffer over memory of others has none.
struct Buffer {
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  uint32_t magic = kBufferMagic;
  Device* device = nullptr;  // That it is lent by, of whatever instance.
  std::atomic<bool> is_mapped = false;
  bool is_registered = false;  // The host's memory, until unregister_host().
  bool is_wrapped = false;     // Of nobody that address_info() may name.
  std::byte* address = nullptr;
  uint64_t size_bytes = 0;
  std::unique_ptr<std::byte, Free> memory;
  std::unique_ptr<Mapping> mapping;          // Shared with other processes;
  std::unique_ptr<MemoryFile> file;          // of one that may be exported.
  std::unique_ptr<Reservation> reservation;  // A range of addresses.
};

// Gives the buffer to the device, and its handle to the caller of `call`. Throws StatusError of
// BP_ALREADY_EXISTS where it would overlap another that owns its memory.
bp_buffer* lend(Device& device, std::unique_ptr<Buffer> buffer, const char* call);

// Ends `buffer`, and the memory that it owns. take_back() comes first, except in the device's end.
void take_back(Buffer* buffer);
void release(Buffer* buffer);

// Throws StatusError of BP_OUT_OF_MEMORY for more than a buffer may have.
void check_room(const Device& device, uint64_t size_bytes, const char* call);

// Memory of size_bytes that other processes can share, in `buffer`.
void allocate_shared(Buffer& buffer, uint64_t size_bytes);

// The buffer behind a handle, or NULL if it is not one of this backend.
inline Buffer* buffer(bp_buffer* handle) {
  Buffer* const b = reinterpret_cast<Buffer*>(handle);
  return b != nullptr && b->magic == kBufferMagic ? b : nullptr;
}

// The entries of the allocator's table for memory that came from others, or goes to them.
bp_status memory_wrap_address(void* self, bp_device* handle, uint64_t address, uint64_t size_bytes,
                              bp_buffer** out_buffer);
bp_status memory_address_info(void* self, uint64_t address, bp_address_info* out_info);
bp_status memory_register_host(void* self, bp_device* handle, void* memory, uint64_t size_bytes,
                               bp_buffer** out_buffer);
bp_status memory_unregister_host(void* self, bp_buffer* handle);
bp_status memory_export_buffer(void* self, bp_buffer* handle, bp_external_type type,
                               bp_external_handle* out_handle);
bp_status memory_import_buffer(void* self, bp_device* handle, const bp_external_handle* external,
                               bp_buffer** out_buffer);

}  // namespace bp::cpu
