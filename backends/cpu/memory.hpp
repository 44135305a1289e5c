// Buffers of the CPU backend: host memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "backplane/tensor.h"

namespace bp::cpu {

constexpr uint32_t kBufferMagic = 0x62756666;

struct Buffer {
  uint32_t magic = kBufferMagic;
  std::atomic<bool> is_mapped = false;
  std::byte* address = nullptr;
  uint64_t size_bytes = 0;
};

// Frees the memory behind `buffer`, and `buffer`.
void release(Buffer* buffer);

// The buffer behind a handle, or NULL if it is not one of this backend.
inline Buffer* buffer(bp_buffer* handle) {
  Buffer* const b = reinterpret_cast<Buffer*>(handle);
  return b != nullptr && b->magic == kBufferMagic ? b : nullptr;
}

}  // namespace bp::cpu
