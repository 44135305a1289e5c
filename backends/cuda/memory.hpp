// Buffers: memory of a device, or of the host where the device reaches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backends/cuda/stream.hpp"
#include "backplane/memory.h"

namespace bp::cuda {

constexpr uint32_t kBufferMagic = 0x43427566;

enum class BufferKind : uint8_t {
  kPool,        // Of the device's pool: free never waits.
  kPlain,       // cudaMalloc.
  kPinned,      // cudaHostAlloc: the host reaches it too.
  kWrapped,     // Somebody else's.
  kRegistered,  // The host's own, until unregister_host().
  kImported,    // Another process's.
};

// Memory without its handle.
struct OwnedMemory {
  // Frees it: all uses have completed. Never fails; waits for the device only if it is of
  // cudaMalloc().
  void end() const;

  // Frees it behind what was submitted to `lane`.
  void end_behind(Lane& lane) const;

  Device* device;
  BufferKind kind;
  void* base;  // NULL: nothing is owned.
};

struct Buffer {
  // What it owns; nothing of a wrapped one.
  OwnedMemory memory() const;

  uint32_t magic = kBufferMagic;
  Device* device = nullptr;
  BufferKind kind = BufferKind::kWrapped;
  bp_memory_usage usage = 0;
  uint64_t address = 0;  // Of byte 0, for device and host alike.
  uint64_t size_bytes = 0;
  void* base = nullptr;  // What CUDA gave; NULL for a buffer of no bytes, or of others.
  void* host = nullptr;  // Where the host reaches byte 0; NULL if it does not.

  std::mutex mutex;  // Guards `is_mapped`.
  bool is_mapped = false;
};

inline Buffer* buffer_or_null(bp_buffer* handle) {
  auto* const b = reinterpret_cast<Buffer*>(handle);
  return b != nullptr && b->magic == kBufferMagic ? b : nullptr;
}

// The buffer behind a handle, for the argument `what` of the entry `call`. Throws StatusError.
Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what = "buffer");

inline std::byte* pointer_to(uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
  return reinterpret_cast<std::byte*>(address);
}

// The address of a range, NULL for one without a buffer. Of a handle that was checked before.
inline std::byte* address_of(const bp_buffer_ref& range) {
  if (range.buffer == nullptr) return nullptr;
  return pointer_to(reinterpret_cast<Buffer*>(range.buffer)->address + range.byte_offset);
}

// A range of a buffer, checked.
struct Range {
  Buffer& buffer;
  uint64_t address, size_bytes;

  std::byte* begin() const { return pointer_to(address); }
};

// Throws StatusError if the range leaves its buffer.
Range checked_range(const bp_buffer_ref* range, const char* call, const char* name);

// Ends the handle; what it owned is the caller's to end.
std::unique_ptr<Buffer> end_handle(Buffer* buffer);

// Gives `buffer` to its device, and its handle to the caller of `call`. Throws StatusError of
// BP_ALREADY_EXISTS where it would overlap another that owns its memory, which is freed.
bp_buffer* lend(std::unique_ptr<Buffer> buffer, const char* call);

// Bytes to repeat. Plain data: an argument of a kernel.
struct alignas(16) Pattern {
  uint8_t bytes[16];
  uint32_t size_bytes;  // 1 to 16.
};

// Submits filling `size_bytes`, a multiple of the pattern's, from `to` on. Throws CudaError.
void fill_pattern(const Driver& driver, cudaStream_t stream, std::byte* to, uint64_t size_bytes,
                  const Pattern& pattern);

// The entries of the allocator's table that copy and fill.
bp_status memory_copy(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                      const bp_buffer_ref* src);
bp_status memory_copy_from_host(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                                const void* src, bp_borrow borrow);
bp_status memory_copy_to_host(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                              bp_borrow borrow);
bp_status memory_copy_peer(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                           const bp_buffer_ref* src);
bp_status memory_can_access_peer(void* self, bp_device* device_handle, bp_device* peer_handle,
                                 uint32_t* out_can);
bp_status memory_fill(void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                      uint64_t pattern_size_bytes);

// The entries of the allocator's table for memory that came from others, or goes to them.
bp_status memory_wrap_address(void* self, bp_device* handle, uint64_t address, uint64_t size_bytes,
                              bp_buffer** out_buffer);
bp_status memory_address_info(void* self, uint64_t address, bp_address_info* out_info);
bp_status memory_register_host(void* self, bp_device* handle, void* memory, uint64_t size_bytes,
                               bp_buffer** out_buffer);
bp_status memory_unregister_host(void* self, bp_buffer* handle);

}  // namespace bp::cuda
