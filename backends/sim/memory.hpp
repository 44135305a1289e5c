// Buffers of the simulated device: handles of memory, wherever it came from.
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

constexpr uint32_t kBufferMagic = 0x42756666;

enum class BufferKind : uint8_t {
  kAllocated,   // Owns its memory, until free(). So does one that was imported.
  kWrapped,     // Shows memory of others, and is no owner that address_info() may name.
  kRegistered,  // The host's memory, until unregister_host().
  kRange,       // Reserved addresses, until virtual_memory.release().
};

struct Buffer : Handle {
  // A buffer for all of `its_memory`.
  Buffer(Device& its_device, BufferKind its_kind, const std::shared_ptr<Memory>& its_memory)
      : Buffer(its_device, its_kind, its_memory, 0, its_memory->size_bytes()) {}

  // One for size_bytes of it, from first_byte on.
  Buffer(Device& its_device, BufferKind its_kind, std::shared_ptr<Memory> its_memory,
         uint64_t its_first_byte, uint64_t its_size_bytes)
      : Handle(kBufferMagic, its_device),
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
  const std::shared_ptr<Memory> memory;  // Work holds it too.
  const uint64_t first_byte, size_bytes;
  const size_t heap;
  bool is_stream_ordered = false;

  std::mutex mutex;  // Guards what follows.
  bool is_mapped = false;
  // What the host sees of memory that is not coherent; empty until the first map().
  std::vector<std::byte> shadow;
};

// The buffer behind a handle, for the argument `what` of the entry `call`. Throws StatusError if it
// is none of this backend, its device is lost, or the device was reset since.
Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what = "buffer");

// Gives `buffer` to its device, and its handle to the caller of `call`. Throws StatusError of
// BP_ALREADY_EXISTS where it would overlap another that owns its memory.
bp_buffer* lend(std::unique_ptr<Buffer> buffer, const char* call);

// Ends the handle, whose memory stays.
void end_handle(Buffer* buffer);

// The buffer behind a handle, dead or alive; NULL if it is none of this backend.
inline Buffer* buffer_or_null(bp_buffer* handle) {
  Buffer* const b = reinterpret_cast<Buffer*>(handle);
  return b != nullptr && b->magic == kBufferMagic ? b : nullptr;
}

// A range of a buffer, checked.
struct Range {
  Buffer& buffer;
  uint64_t byte_offset, size_bytes;

  Use use(Access access) const { return buffer.use(byte_offset, size_bytes, access); }
};

// `access` is what will happen there. Throws StatusError if the range leaves its buffer.
Range checked_range(const bp_buffer_ref* range, const char* call, const char* name, Access access);

// The same, for work that reads or writes it.
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

// Those for memory that came from others, or goes to them.
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

// Memory that other processes can share, for `allocate`.
std::shared_ptr<Memory> make_shared_memory(const Device& device, size_t heap, uint64_t size_bytes);

}  // namespace bp::sim
