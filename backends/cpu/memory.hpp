// Buffers of the CPU backend: host memory, wherever it came from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "backplane/memory.h"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/reservation.hpp"

namespace bp::cpu {

class Device;

// A buffer owns its memory through `memory`, `mapping` or `reservation`. At most one of them is
// set, and none is set if the buffer lies over memory that it does not own.
struct Buffer {
  static constexpr uint32_t kMagic = 0x62756666;

  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  uint32_t magic = kMagic;
  Device* device = nullptr;  // The device that lends the buffer; it may belong to any instance.
  std::atomic<bool> is_mapped = false;
  bool is_registered = false;  // Its memory is the host's, registered until unregister_host().
  bool is_wrapped = false;     // address_info() does not name this buffer.
  std::byte* address = nullptr;
  uint64_t size_bytes = 0;
  std::unique_ptr<std::byte, Free> memory;
  std::unique_ptr<Mapping> mapping;          // Memory that other processes can share.
  std::unique_ptr<MemoryFile> file;          // The file of `mapping`, set if export is possible.
  std::unique_ptr<Reservation> reservation;  // A range of addresses.
};

// Gives the buffer to the device and returns its handle. Throws StatusError of BP_ALREADY_EXISTS if
// the buffer would overlap another buffer that owns its memory.
bp_buffer* lend(Device& device, std::unique_ptr<Buffer> buffer, const char* call);

// take_back() removes `buffer` from its device. release() then frees the buffer and the memory that
// it owns; the device's destructor calls release() alone.
void take_back(Buffer* buffer);
void release(Buffer* buffer);

// Allocates size_bytes of memory that other processes can share, and gives it to `buffer`.
void allocate_shared(Buffer& buffer, uint64_t size_bytes);

// Returns the buffer behind a handle, or NULL if the handle is not of this backend.
inline Buffer* buffer(bp_buffer* handle) { return object_of<Buffer>(handle); }

// Where a call works; `access` is what will happen there. Throws StatusError for a range that it
// does not take.
std::byte* checked_range(const bp_buffer_ref* range, const char* call, const char* name,
                         bp_access access);

// The entries of the allocator's table that move bytes (memory_copy.cpp).
bp_status memory_copy(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src);
bp_status memory_copy_from_host(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow);
bp_status memory_copy_to_host(void* self, bp_stream* stream_handle, void* dst,
                              const bp_buffer_ref* src, bp_borrow borrow);
bp_status memory_can_access_peer(void* self, bp_device* device_handle, bp_device* peer_handle,
                                 uint32_t* out_can);
bp_status memory_fill(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const void* pattern, uint64_t pattern_size_bytes);

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
