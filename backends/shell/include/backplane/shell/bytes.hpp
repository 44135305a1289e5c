// Copies, fills and checks of their arguments, for a backend whose memory the host can access.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "backplane/memory.h"
#include "backplane/shell/boundary.hpp"

namespace bp {

constexpr uint64_t kMaxPatternBytes = 16;

inline void copy_bytes(void* dst, const void* src, uint64_t size_bytes) {
  if (size_bytes > 0) std::memcpy(dst, src, size_bytes);
}

// Fills `dst`: writes the pattern once, then copies what is written behind itself.
inline void fill_bytes(std::byte* dst, uint64_t size_bytes, const std::byte* pattern,
                       uint64_t pattern_size_bytes) {
  if (size_bytes == 0) return;
  std::memcpy(dst, pattern, pattern_size_bytes);
  // A block has at most 64 KiB, so that the source of the later blocks stays in the cache.
  const uint64_t block =
      std::max<uint64_t>(pattern_size_bytes, 65536 / pattern_size_bytes * pattern_size_bytes);
  for (uint64_t done = pattern_size_bytes; done < size_bytes;) {
    const uint64_t part = std::min({done, block, size_bytes - done});
    std::memcpy(dst + done, dst, part);
    done += part;
  }
}

// Throws StatusError unless a fill of size_bytes can use `pattern`.
inline void check_pattern(const void* pattern, uint64_t pattern_size_bytes, uint64_t size_bytes) {
  if (pattern == nullptr) throw StatusError(BP_INVALID_ARGUMENT, "fill: pattern is NULL");
  if (pattern_size_bytes < 1 || pattern_size_bytes > kMaxPatternBytes) {
    throw StatusError(BP_INVALID_ARGUMENT, "fill: pattern_size_bytes is " +
                                               std::to_string(pattern_size_bytes) +
                                               "; 1 to 16 are allowed");
  }
  if (size_bytes % pattern_size_bytes != 0) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      "fill: " + std::to_string(size_bytes) + " bytes are no multiple of " +
                          std::to_string(pattern_size_bytes) + ", the size of the pattern");
  }
}

// Throws StatusError for a host pointer that the copy `call` cannot use.
inline void check_host_pointer(const void* pointer, uint64_t size_bytes, bp_borrow borrow,
                               const char* call, const char* name) {
  if (pointer == nullptr && size_bytes > 0) {
    throw StatusError(BP_INVALID_ARGUMENT, std::string(call) + ": " + name + " is NULL");
  }
  if (borrow != BP_BORROW_DURING_CALL && borrow != BP_BORROW_UNTIL_COMPLETE) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      std::string(call) + ": borrow is " + std::to_string(borrow) +
                          ", not BP_BORROW_DURING_CALL or BP_BORROW_UNTIL_COMPLETE");
  }
}

}  // namespace bp
