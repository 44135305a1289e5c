// Reads structs and frames of other builds, as far as both builds know them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backplane/base.h"

namespace bp::core {

// The limit of bp_struct_read(), for readers that do not call it.
inline constexpr uint32_t kMaxStructBytes = BP_MAX_STRUCT_BYTES;
inline constexpr uint32_t kMaxLinks = BP_MAX_LINKS;

// Does what bp_struct_read() does for data that begin with a size and no header, as frames do. It
// also reads structs whose links the caller passes on, and does not look at the links.
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
