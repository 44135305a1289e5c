// Buffers: handles of device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backplane/shell/buffers.hpp"
#include "stream.hpp"

namespace acme_opencl {

struct Buffer : Handle {
  static constexpr uint32_t kMagic = 0x41427566;

  Buffer(Device& its_device, std::shared_ptr<Memory> memory)
      : Handle(kMagic, its_device),
        size_bytes(memory->size_bytes()),
        address(memory->address()),
        memory_(std::move(memory)) {}

  std::shared_ptr<Memory> memory() const {
    const std::lock_guard lock(memory_mutex_);
    return memory_;
  }

  // Takes the memory from the handle, which is dead from then on.
  std::shared_ptr<Memory> take_memory() {
    const std::lock_guard lock(memory_mutex_);
    return std::exchange(memory_, nullptr);
  }

  const uint64_t size_bytes, address;

  std::mutex mutex;  // It guards `maps`.
  std::vector<void*> maps;

 private:
  mutable std::mutex memory_mutex_;  // It guards `memory_`.
  std::shared_ptr<Memory> memory_;
};

// A range of a buffer, checked.
using Range = bp::BufferRange<Buffer>;

inline Use use_of(const Range& range, bool is_written) {
  return {{range.buffer.memory(), range.byte_offset}, range.size_bytes, is_written};
}

// What the table of the allocator, which the shell makes, asks of this backend (memory_ops.hpp).
struct MemoryTraits : bp::Cards<Instance, Device> {
  using Stream = acme_opencl::Stream;
  using Buffer = acme_opencl::Buffer;

  static std::unique_ptr<Buffer> allocate(Device& d, const bp_allocate_desc& request);
  static bp_status deallocate(const Instance& i, Buffer& buffer, Stream* stream);
  static const char* why_no_address(const Instance&) {
    return "buffers of this device are handles alone";
  }
  static uint64_t address_of(const Buffer& b) { return b.address; }
  static uint64_t heap_of(const Buffer&) { return 0; }
  static bool is_wrapped(const Buffer&) { return false; }
  static bool is_registered(const Buffer&) { return false; }
  static void check_map(const Buffer&) { bp::check_mappable(false, false); }
  static void* map(const Range&) { return nullptr; }  // check_map() refuses every buffer.

  static bool is_local(const Stream& s, const Buffer& b) {
    return &b.device->card() == &s.device->card();
  }
  static bool can_access(const Instance&, const Device& device, const Device& peer) {
    return &device == &peer;
  }
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

}  // namespace acme_opencl
