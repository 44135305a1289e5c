// Buffers, which are memory of a device, or host memory that the device can access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backends/cuda/stream.hpp"
#include "backplane/memory.h"

namespace bp::cuda {

enum class BufferKind : uint8_t {
  kPool,        // From the device's pool; free() never waits.
  kPlain,       // From cudaMalloc().
  kPinned,      // From cudaHostAlloc(), which the host can access.
  kWrapped,     // Owned by another library.
  kRegistered,  // The host's memory until unregister_host().
  kImported,    // Owned by another process.
};

// Memory without a handle.
struct OwnedMemory {
  // Frees the memory, whose uses have all completed. It never fails, and waits for the device only
  // if the memory is from cudaMalloc().
  void end() const;

  // Frees the memory behind the work submitted to `lane`.
  void end_behind(Lane& lane) const;

  Device* device;
  BufferKind kind;
  void* base;  // NULL if nothing is owned.
};

struct Buffer : Handle {
  static constexpr uint32_t kMagic = 0x43427566;

  Buffer(Device& its_device, BufferKind its_kind, uint64_t its_size_bytes)
      : Handle(kMagic, its_device), kind(its_kind), size_bytes(its_size_bytes) {}

  // Returns the memory that the buffer owns. A wrapped buffer owns none.
  OwnedMemory memory() const;

  const BufferKind kind;
  const uint64_t size_bytes;
  bp_memory_usage usage = 0;
  uint64_t address = 0;  // The address of byte 0 for device and host.
  void* base = nullptr;  // CUDA's pointer; NULL if it has no bytes or is not owned.
  void* host = nullptr;  // The host's address of byte 0, or NULL.

  std::mutex mutex;  // It guards `is_mapped`.
  bool is_mapped = false;
};

inline Buffer* buffer_or_null(bp_buffer* handle) { return object_of<Buffer>(handle); }

// Returns the buffer behind a handle, which is the argument `what` of the entry `call`. Throws
// StatusError.
inline Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what = "buffer") {
  return live_object_of<Buffer>(handle, call, what);
}

inline std::byte* pointer_to(uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
  return reinterpret_cast<std::byte*>(address);
}

// Returns the address of a range, or NULL if it has no buffer. The handle must have been checked
// before.
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

// Checks a range. Throws StatusError if it leaves its buffer.
Range checked_range(const bp_buffer_ref* range, const char* call, const char* name);

// Ends the handle, and gives its buffer to the caller, who frees the memory.
std::unique_ptr<Buffer> end_handle(Buffer* buffer);

// Gives `buffer` to its device and returns its handle. If it would overlap another buffer that owns
// its memory, frees it and throws StatusError of BP_ALREADY_EXISTS.
bp_buffer* lend(std::unique_ptr<Buffer> buffer, const char* call);

// The bytes that a fill repeats. It is plain data, because it is an argument of a kernel.
struct alignas(16) Pattern {
  uint8_t bytes[16];
  uint32_t size_bytes;  // It is 1 to 16.
};

// Submits a fill of `size_bytes`, a multiple of the pattern's size, from `to` on. Throws CudaError.
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

// The entries of the allocator's table for memory that the host or another library owns.
bp_status memory_wrap_address(void* self, bp_device* handle, uint64_t address, uint64_t size_bytes,
                              bp_buffer** out_buffer);
bp_status memory_address_info(void* self, uint64_t address, bp_address_info* out_info);
bp_status memory_register_host(void* self, bp_device* handle, void* memory, uint64_t size_bytes,
                               bp_buffer** out_buffer);
bp_status memory_unregister_host(void* self, bp_buffer* handle);

}  // namespace bp::cuda
