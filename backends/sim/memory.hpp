// Buffers of the simulated device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/sim/pages.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/tensor.h"

namespace bp::sim {

constexpr uint32_t kBufferMagic = 0x42756666;

struct Buffer : Handle {
  explicit Buffer(Device& its_device) : Handle(kBufferMagic, its_device) {}

  bp_heap_flags heap_flags() const { return device->heap(heap).flags; }
  bool has_shadow() const {
    return (heap_flags() & (BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT)) == BP_HEAP_HOST_VISIBLE;
  }

  size_t heap = 0;
  bool is_stream_ordered = false;
  std::shared_ptr<Pages> pages;  // Work holds them too.

  std::mutex mutex;  // Guards what follows.
  bool is_mapped = false;
  // What the host sees of memory that is not coherent; empty until the first map().
  std::vector<std::byte> shadow;
};

// The buffer behind a handle, for the argument `what` of the entry `call`. Throws StatusError if it
// is none of this backend, its device is lost, or the device was reset since.
Buffer& buffer_of(bp_buffer* handle, const char* call, const char* what = "buffer");

// A range for work that reads or writes it. Throws StatusError if it leaves its buffer.
Use use_of(const bp_buffer_ref& range, Access access, const char* call, const char* what);

}  // namespace bp::sim
