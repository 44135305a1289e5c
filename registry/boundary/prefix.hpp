// Structs and frames of other builds, as far as both builds know them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backplane/base.h"

namespace bp::core {

// What bp_struct_read() allows, for those who read without it.
inline constexpr uint32_t kMaxStructBytes = 65536;
inline constexpr uint32_t kMaxLinks = 64;

// bp_struct_read() for what begins with a size and no header, as frames do, and for those who pass
// a struct on with its links: nobody looks at them here.
inline bp_status read_prefix(const void* theirs, uint32_t first_size_bytes, void* ours,
                             uint32_t our_size_bytes, uint32_t* out_offset) {
  uint32_t size_bytes;
  std::memcpy(&size_bytes, theirs, sizeof(size_bytes));
  if (size_bytes > kMaxStructBytes) {
    if (out_offset != nullptr) *out_offset = 0;
    return BP_INCOMPATIBLE;
  }
  const auto* const bytes = static_cast<const unsigned char*>(theirs);
  for (uint32_t i = our_size_bytes; out_offset != nullptr && i < size_bytes; ++i) {
    if (bytes[i] != 0) return *out_offset = i, BP_INCOMPATIBLE;
  }
  if (size_bytes < first_size_bytes) {
    if (out_offset != nullptr) *out_offset = size_bytes;
    return BP_INCOMPATIBLE;
  }
  std::memset(ours, 0, our_size_bytes);
  std::memcpy(ours, theirs, std::min(size_bytes, our_size_bytes));
  std::memcpy(ours, &our_size_bytes, sizeof(our_size_bytes));
  return BP_OK;
}

// Copies what both builds know; the rest is zero.
template <typename Struct>
void copy_prefix(const Struct& theirs, Struct& ours) {
  static_cast<void>(read_prefix(&theirs, 0, &ours, sizeof(Struct), nullptr));
}

}  // namespace bp::core
