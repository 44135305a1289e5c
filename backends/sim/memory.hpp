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
#include "backplane/shell/buffers.hpp"
#include "backplane/shell/lookup.hpp"

namespace bp::sim {

enum class BufferKind : uint8_t {
  kAllocated,   // Owns its memory until deallocate(). Imported memory has this kind too.
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

  // Throws StatusError if the memory of the range may not be used with this access.
  void check_access(const char* call, const char* name, const bp_buffer_ref& range,
                    bp_access access) const;

  const BufferKind kind;
  const std::shared_ptr<Memory> memory;  // Work holds the memory too.
  const uint64_t first_byte, size_bytes;
  const size_t heap;
  bool is_stream_ordered = false;
  bool is_imported = false;

  std::mutex mutex;  // It guards the members below.
  std::vector<void*> maps;
  // The copy that the host sees if the memory is not coherent. It is empty until the first map().
  std::vector<std::byte> shadow;
};

// Returns the buffer that the argument `what` of the entry `call` names. Throws StatusError if the
// handle is not of this backend, if its device is lost, or if the device was reset since.
inline Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what) {
  return live_buffer_of<Buffer>(handle, call, what);
}

// Returns the buffer behind a handle, even if its device is lost or was reset; NULL if the handle
// is not of this backend.
inline Buffer* buffer_or_null(bp_buffer* handle) { return object_of<Buffer>(handle); }

// A range of a buffer, checked.
using Range = BufferRange<Buffer>;

// Returns a range for work that uses it.
inline Use use_of(const Range& range, Access access) {
  return range.buffer.use(range.byte_offset, range.size_bytes, access);
}

// The same for a range that is not checked yet. Throws StatusError if it leaves its buffer, or if
// its memory may not be used with this access.
Use use_of(const bp_buffer_ref& range, Access access, const char* call, const char* what);

// What the table of the allocator, which the shell makes, asks of this backend. memory_copy.cpp has
// the copies and fills, and memory_external.cpp has what concerns the memory of others.
struct MemoryTraits : Cards<Instance, Device> {
  using Stream = sim::Stream;
  using Buffer = sim::Buffer;

  static std::unique_ptr<Buffer> allocate(Device& d, const bp_allocate_desc& request);
  static bp_status deallocate(const Instance& i, Buffer& buffer, Stream* stream);
  static const char* why_no_address(const Instance& i);
  static uint64_t address_of(const Buffer& b) { return reinterpret_cast<uintptr_t>(b.address()); }
  static uint64_t heap_of(const Buffer& b) { return b.heap; }
  static bool is_wrapped(const Buffer& b) { return b.kind == BufferKind::kWrapped; }
  static bool is_registered(const Buffer& b) { return b.kind == BufferKind::kRegistered; }
  static bool is_imported(const Buffer& b) { return b.is_imported; }
  static bool is_reserved(const Buffer& b) { return b.kind == BufferKind::kRange; }
  static const Layouts* layouts_of(const Instance& i);
  static void check_map(const Buffer& b);
  static void* map(const Range& range);
  static void unmap(const Buffer& b);
  static void flush(const Range& range);
  static void invalidate(const Range& range);

  static bool is_local(const Stream& s, const Buffer& b) {
    return &b.device->card() == &s.device->card();
  }
  static bool can_access(const Instance& i, const Device& device, const Device& peer);
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
  static void unregister_host(const std::unique_ptr<Buffer>& b) { b->memory->discard(); }
  static const MemoryFile* exported_file(const Buffer& b) {
    return b.kind == BufferKind::kAllocated ? b.memory->file() : nullptr;
  }
  static std::unique_ptr<Buffer> import_buffer(Device& d, const bp_external_handle& external);
};

// Makes memory that other processes can share, for `allocate`.
std::shared_ptr<Memory> make_shared_memory(const Device& device, size_t heap, uint64_t size_bytes);

}  // namespace bp::sim
