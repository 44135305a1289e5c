// Buffers of the device: handles of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "backends/vulkan/context.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/memory.h"

namespace bp::vulkan {

enum class BufferKind : uint8_t {
  kAllocated,  // Owns its memory until free().
  kWrapped,    // Lies over memory that it does not own, and address_info() never names it.
};

struct Buffer : Handle {
  static constexpr uint32_t kMagic = 0x56427566;

  Buffer(Device& its_device, BufferKind its_kind, std::shared_ptr<Memory> its_memory,
         uint64_t its_first_byte, uint64_t its_size_bytes)
      : Handle(kMagic, its_device),
        kind(its_kind),
        memory(std::move(its_memory)),
        first_byte(its_first_byte),
        size_bytes(its_size_bytes) {}

  bp_heap_flags heap_flags() const { return memory->heap().flags; }
  uint64_t address() const { return memory->address() + first_byte; }

  // Returns the offset in the VkBuffer of its memory.
  uint64_t offset_in_buffer(uint64_t byte_offset) const {
    return memory->first_byte() + first_byte + byte_offset;
  }

  const BufferKind kind;
  const std::shared_ptr<Memory> memory;
  const uint64_t first_byte, size_bytes;
  bool is_stream_ordered = false;

  std::mutex mutex;  // It guards `is_mapped`.
  bool is_mapped = false;
};

// Returns the buffer behind a handle, which is the argument `what` of the entry `call`. Throws
// StatusError if the handle is not of this backend, if its device is lost, or if the device was
// reset since.
inline Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what = "buffer") {
  return live_object_of<Buffer>(handle, call, what);
}

// Returns the buffer behind a handle, even if its device is lost or was reset; NULL if the handle
// is not of this backend.
inline Buffer* buffer_or_null(bp_buffer* handle) { return object_of<Buffer>(handle); }

// A range of a buffer, checked.
struct CheckedRange {
  Buffer& buffer;
  uint64_t byte_offset, size_bytes;

  AddressRange use(bool is_written) const {
    const uint64_t begin = buffer.address() + byte_offset;
    return {begin, begin + size_bytes, is_written};
  }
  VkBuffer vulkan_buffer() const { return buffer.memory->buffer(); }
  uint64_t offset_in_buffer() const { return buffer.offset_in_buffer(byte_offset); }
};

// Checks a range. Throws StatusError if it leaves its buffer.
CheckedRange checked_range(const bp_buffer_ref* range, const char* call, const char* name);

// Checks a range in memory of the device of `stream`.
CheckedRange local_range(const Stream& stream, const bp_buffer_ref* range, const char* call,
                         const char* name);

// Gives the buffer to its device, and its handle to the caller.
bp_buffer* lend(std::unique_ptr<Buffer> buffer);

// Submits the copy of one range to another.
bp_status submit_copy(Stream& stream, const CheckedRange& dst, const CheckedRange& src,
                      const char* call);

// The entries of the allocator's table that move bytes (memory_copy.cpp).
bp_status memory_copy(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src);
bp_status memory_copy_from_host(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow);
bp_status memory_copy_to_host(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                              bp_borrow borrow);
bp_status memory_copy_peer(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                           const bp_buffer_ref* src);
bp_status memory_can_access_peer(void* self, bp_device* device, bp_device* peer, uint32_t* out_can);
bp_status memory_fill(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                      uint64_t pattern_size_bytes);

// The entries for memory that the host knows by its address (memory_external.cpp).
bp_status memory_wrap_address(void* self, bp_device* handle, uint64_t address, uint64_t size_bytes,
                              bp_buffer** out_buffer);
bp_status memory_address_info(void* self, uint64_t address, bp_address_info* out_info);

}  // namespace bp::vulkan
