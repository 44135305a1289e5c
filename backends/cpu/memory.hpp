// Buffers of the CPU backend: host memory, wherever it came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cpu/stream.hpp"
#include "backplane/memory.h"
#include "backplane/shell/buffers.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/reservation.hpp"

namespace bp::cpu {

struct Instance;

// A buffer owns its memory through `memory`, `mapping` or `reservation`. At most one of them is
// set, and none is set if the buffer lies over memory that it does not own.
struct Buffer : Handle {
  static constexpr uint32_t kMagic = 0x62756666;

  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };

  // The device that lends the buffer may belong to any instance.
  Buffer(Device& its_device, uint64_t its_size_bytes)
      : Handle(kMagic, its_device), size_bytes(its_size_bytes) {}

  // Throws StatusError if the range may not be used with this access.
  void check_access(const char* call, const char* name, const bp_buffer_ref& range,
                    bp_access access) const;

  const uint64_t size_bytes;
  std::byte* address = nullptr;
  bool is_registered = false;  // Its memory is the host's, registered until unregister_host().
  bool is_wrapped = false;     // address_info() does not name this buffer.
  std::unique_ptr<std::byte, Free> memory;
  std::unique_ptr<Mapping> mapping;          // Memory that other processes can share.
  std::unique_ptr<MemoryFile> file;          // The file of `mapping`, set if export is possible.
  std::unique_ptr<Reservation> reservation;  // A range of addresses.

  std::mutex mutex;  // It guards `maps`.
  std::vector<void*> maps;
};

// Allocates memory that other processes can share, and gives it to `buffer`.
void allocate_shared(Buffer& buffer);

// Returns the buffer behind a handle, or NULL if the handle is not of this backend.
inline Buffer* buffer(bp_buffer* handle) { return object_of<Buffer>(handle); }

// What the table of the allocator, which the shell makes, asks of this backend. memory_copy.cpp has
// the copies and fills, and memory_external.cpp has what concerns the memory of others.
struct MemoryTraits : Cards<Instance, Device> {
  using Stream = cpu::Stream;
  using Buffer = cpu::Buffer;
  using Range = BufferRange<Buffer>;

  static std::unique_ptr<Buffer> allocate(Device& d, const bp_allocate_desc& request);
  static bp_status deallocate(const Instance& i, Buffer& buffer, const Stream* stream);
  static uint64_t address_of(const Buffer& b) { return reinterpret_cast<uintptr_t>(b.address); }
  static uint64_t heap_of(const Buffer&) { return 0; }  // There is one heap.
  static bool is_wrapped(const Buffer& b) { return b.is_wrapped; }
  static bool is_registered(const Buffer& b) { return b.is_registered; }
  static bool is_imported(const Buffer& b) { return b.mapping != nullptr && b.file == nullptr; }
  static bool is_reserved(const Buffer& b) { return b.reservation != nullptr; }
  static const Layouts* layouts_of(const Instance& i);
  static void check_map(const Buffer&) {}  // The host sees all memory.
  static void* map(const Range& range) { return range.buffer.address + range.byte_offset; }

  static bool is_local(const Stream&, const Buffer&) { return true; }  // There is one device.
  static bool can_access(const Instance&, const Device&, const Device&) { return false; }
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
  static void unregister_host(std::unique_ptr<Buffer>) {}
  static const MemoryFile* exported_file(const Buffer& b) { return b.file.get(); }
  static std::unique_ptr<Buffer> import_buffer(Device& d, const bp_external_handle& external);
};

}  // namespace bp::cpu
