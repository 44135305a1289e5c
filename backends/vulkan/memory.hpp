// Buffers of the device: handles of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/vulkan/context.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/memory.h"
#include "backplane/shell/buffers.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/lookup.hpp"

namespace bp::vulkan {

enum class BufferKind : uint8_t {
  kAllocated,  // Owns its memory until deallocate().
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

  std::mutex mutex;  // It guards `maps`.
  std::vector<void*> maps;
};

// Returns the buffer that the argument `what` of the entry `call` names. Throws StatusError if the
// handle is not of this backend, if its device is lost, or if the device was reset since.
inline Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what) {
  return live_buffer_of<Buffer>(handle, call, what);
}

// A range of a buffer, checked.
using CheckedRange = BufferRange<Buffer>;

inline AddressRange use_of(const CheckedRange& range, bool is_written) {
  const uint64_t begin = range.buffer.address() + range.byte_offset;
  return {begin, begin + range.size_bytes, is_written};
}

// What the table of the allocator, which the shell makes, asks of this backend. memory_copy.cpp has
// the copies and fills, and memory_external.cpp has what concerns the memory of others.
struct MemoryTraits : Cards<Instance, Device> {
  using Stream = vulkan::Stream;
  using Buffer = vulkan::Buffer;
  using Range = CheckedRange;

  static std::unique_ptr<Buffer> allocate(Device& d, const bp_allocate_desc& request);
  static bp_status deallocate(const Instance& i, Buffer& buffer, const Stream* stream);
  static uint64_t address_of(const Buffer& b) { return b.address(); }
  static uint64_t heap_of(const Buffer& b) { return b.memory->heap_index(); }
  static const Layouts* layouts_of(const Instance& i);
  static bool is_wrapped(const Buffer& b) { return b.kind == BufferKind::kWrapped; }
  static bool is_registered(const Buffer&) { return false; }
  static void check_map(const Buffer& b);
  static void* map(const Range& range);
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
};

}  // namespace bp::vulkan
