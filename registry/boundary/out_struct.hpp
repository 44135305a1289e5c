// Results whose size the caller sets.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/prefix.hpp"

namespace bp::core {

// Copies `ours` to `theirs`, as much as the caller's build knows. The header stays as it was. A
// size below `first_size_bytes` is BP_INCOMPATIBLE.
template <typename Struct>
bp_status write_out(const Struct& ours, Struct* theirs, uint32_t first_size_bytes,
                    const char* name) {
  if (theirs == nullptr) return fail(BP_INVALID_ARGUMENT, std::string(name) + " is NULL");
  const uint32_t size_bytes = theirs->struct_size;
  if (size_bytes < first_size_bytes || size_bytes > kMaxStructBytes) {
    return fail(BP_INCOMPATIBLE, std::string(name) + ": struct_size is " +
                                     std::to_string(size_bytes) + ", allowed are " +
                                     std::to_string(first_size_bytes) + " to " +
                                     std::to_string(kMaxStructBytes));
  }
  const size_t header = sizeof(bp_struct_header);
  std::memcpy(reinterpret_cast<char*>(theirs) + header,
              reinterpret_cast<const char*>(&ours) + header,
              std::min<size_t>(size_bytes, sizeof(ours)) - header);
  return BP_OK;
}

}  // namespace bp::core
