// Buffers of the simulated device. A buffer is a handle for memory of any origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/sim/pages.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/memory.h"

namespace bp::sim {

enum class BufferKind : uint8_t {
  kAllocated,   // Owns its memory until free(). Imported memory has this kind too.
  kWrapped,     // Lies over memory that it does not own, and address_info() never names it.
  kRegistered,  // Lies over the host's memory until unregister_host().
  kRange,       // Reserves addresses until virtual_memory.release().
};

struct Buffer : Handle {
  static constexpr uint32_t kMagic = 0x42756666;

  // Makes a buffer for all of `its_memory`.
  Buffer(Device& its_device, BufferKind its_kind, const std::shared_ptr<Memory>& its_memory)
      : Buffer(its_device, its_kind, its_memory, 0, its_memory->size_bytes()) {}

  // Makes a buffer for size_bytes of `its_memory`, from first_byte on.
  Buffer(Device& its_device, BufferKind its_kind, std::shared_ptr<Memory> its_memory,
         uint64_t its_first_byte, uint64_t its_size_bytes)
      : Handle(kMagic, its_device),
        kind(its_kind),
        memory(std::move(its_memory)),
        first_byte(its_first_byte),
        size_bytes(its_size_bytes),
        heap(memory->heap()) {}

  bp_heap_flags heap_flags() const { return device->heap(heap).flags; }
  bool has_shadow() const {
    if (kind == BufferKind::kRegistered) return false;
    return (heap_flags() & (BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT)) == BP_HEAP_HOST_VISIBLE;
  }

  std::byte* address() const { return memory->address() + first_byte; }
  Use use(uint64_t byte_offset, uint64_t use_bytes, Access access) const {
    return {memory, first_byte + byte_offset, use_bytes, access};
  }

  const BufferKind kind;
  const std::shared_ptr<Memory> memory;  // Work holds the memory too.
  const uint64_t first_byte, size_bytes;
  const size_t heap;
  bool is_stream_ordered = false;

  std::mutex mutex;  // It guards the members below.
  bool is_mapped = false;
  // The copy that the host sees if the memory is not coherent. It is empty until the first map().
  std::vector<std::byte> shadow;
};

// Returns the buffer behind a handle, which is the argument `what` of the entry `call`. Throws
// StatusError if the handle is not of this backend, if its device is lost, or if the device was
// reset since.
inline Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what = "buffer") {
  return live_object_of<Buffer>(handle, call, what);
}

// Gives `buffer` to its device and returns its handle. Throws StatusError of BP_ALREADY_EXISTS if
// the buffer would overlap another buffer that owns its memory.
bp_buffer* lend(std::unique_ptr<Buffer> buffer, const char* call);

// Ends the handle. Its memory stays.
void end_handle(Buffer* buffer);

// Returns the buffer behind a handle, even if its device is lost or was reset; NULL if the handle
// is not of this backend.
inline Buffer* buffer_or_null(bp_buffer* handle) { return object_of<Buffer>(handle); }

// A range of a buffer, checked.
struct Range {
  Buffer& buffer;
  uint64_t byte_offset, size_bytes;

  Use use(Access access) const { return buffer.use(byte_offset, size_bytes, access); }
};

// Returns a range that a call uses with `access`. Throws StatusError if the range leaves its
// buffer.
Range checked_range(const bp_buffer_ref* range, const char* call, const char* name, Access access);

// Checks a range in the same way, and returns it for work that uses it.
Use use_of(const bp_buffer_ref& range, Access access, const char* call, const char* what);

// The entries of the allocator's table that copy and fill.
bp_status memory_copy(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src);
bp_status memory_copy_from_host(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow);
bp_status memory_copy_to_host(void* self, bp_stream* stream_handle, void* dst,
                              const bp_buffer_ref* src, bp_borrow borrow);
bp_status memory_copy_peer(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                           const bp_buffer_ref* src);
bp_status memory_can_access_peer(void* self, bp_device* device_handle, bp_device* peer_handle,
                                 uint32_t* out_can);
bp_status memory_fill(void* self, bp_stream* stream_handle, const bp_buffer_ref* dst,
                      const void* pattern, uint64_t pattern_size_bytes);

// The entries of the allocator's table for memory that the host or another process owns, and for
// memory that another process gets.
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

// Makes memory that other processes can share, for `allocate`.
std::shared_ptr<Memory> make_shared_memory(const Device& device, size_t heap, uint64_t size_bytes);

}  // namespace bp::sim
