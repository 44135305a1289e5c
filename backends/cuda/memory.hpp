// Buffers, which are memory of a device, or host memory that the device can access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/address.hpp"
#include "backends/cuda/stream.hpp"
#include "backplane/memory.h"
#include "backplane/shell/buffers.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/lookup.hpp"

namespace bp::cuda {

enum class BufferKind : uint8_t {
  kPool,        // From the device's pool; deallocate() never waits.
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
  OwnedMemory memory() const { return {device, kind, base}; }
  void end_memory() const { memory().end(); }

  const BufferKind kind;
  const uint64_t size_bytes;
  bp_memory_usage usage = 0;
  uint64_t address = 0;  // The address of byte 0 for device and host.
  void* base = nullptr;  // CUDA's pointer; NULL if it has no bytes or is not owned.
  void* host = nullptr;  // The host's address of byte 0, or NULL.

  std::mutex mutex;  // It guards `maps`.
  std::vector<void*> maps;
};

// Returns the buffer that the argument `what` of the entry `call` names. Throws StatusError.
inline Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what) {
  return live_buffer_of<Buffer>(handle, call, what);
}

inline std::byte* pointer_to(uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
  return reinterpret_cast<std::byte*>(address);
}

// A range of a buffer, checked.
using Range = BufferRange<Buffer>;

inline std::byte* begin_of(const Range& range) {
  return pointer_to(range.buffer.address + range.byte_offset);
}

// The bytes that a fill repeats. It is plain data, because it is an argument of a kernel.
struct alignas(16) Pattern {
  uint8_t bytes[16];
  uint32_t size_bytes;  // It is 1 to 16.
};

// Submits a fill of `size_bytes`, a multiple of the pattern's size, from `to` on. Throws CudaError.
void fill_pattern(const Driver& driver, cudaStream_t stream, std::byte* to, uint64_t size_bytes,
                  const Pattern& pattern);

// What the table of the allocator, which the shell makes, asks of this backend. memory_copy.cpp has
// the copies and fills, and memory_external.cpp has what concerns the memory of others.
struct MemoryTraits : Cards<Instance, Device> {
  using Stream = cuda::Stream;
  using Buffer = cuda::Buffer;

  static std::unique_ptr<Buffer> allocate(Device& d, const bp_allocate_desc& request);
  static bp_status deallocate(const Instance& i, Buffer& buffer, const Stream* stream);
  static uint64_t address_of(const Buffer& b) { return b.address; }
  static uint64_t heap_of(const Buffer& b);
  static const Layouts* layouts_of(const Instance& i);
  static bool is_wrapped(const Buffer& b) { return b.kind == BufferKind::kWrapped; }
  static bool is_registered(const Buffer& b) { return b.kind == BufferKind::kRegistered; }
  static void check_map(const Buffer& b);
  // Memory that the host sees is coherent, so there is no flush().
  static void* map(const Range& range) { return begin_of(range); }

  static bool is_local(const Stream& s, const Buffer& b) {
    return b.device->ordinal() == s.device->ordinal();
  }
  static bool can_access(const Instance& i, Device& device, Device& peer);
  static void check_peers(const Instance& i, const Buffer& dst, const Buffer& src);
  static bp_status copy(const Instance& i, Stream& s, const Range& dst, const Range& src,
                        const char* call);
  static bp_status copy_from_host(const Instance& i, Stream& s, const Range& dst, const void* src,
                                  bp_borrow borrow);
  static bp_status copy_to_host(const Instance& i, Stream& s, void* dst, const Range& src,
                                bp_borrow borrow, uint64_t timeout_ns);
  static bp_status fill(const Instance& i, Stream& s, const Range& dst, const std::byte* pattern,
                        uint64_t pattern_size_bytes);

  static std::unique_ptr<Buffer> wrap(Device& d, uint64_t address, uint64_t size_bytes);
  static std::unique_ptr<Buffer> register_host(Device& d, void* memory, uint64_t size_bytes);
  static void unregister_host(const std::unique_ptr<Buffer>& b) { b->end_memory(); }
};

}  // namespace bp::cuda
