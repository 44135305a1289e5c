// Reads the requests that callers of any build give.
#pragma once

#include <cstdint>
#include <string>

#include "backplane/base.h"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/tables.hpp"

namespace bp::core {

// Reads a request of a caller of any build.
template <typename Struct>
bp_status read_desc(const Struct* theirs, uint32_t type, uint32_t first_size_bytes,
                    const char* name, Struct& ours) {
  const std::string defect = struct_defect(theirs, type, first_size_bytes);
  if (!defect.empty()) return fail(BP_INCOMPATIBLE, std::string(name) + ": desc: " + defect);
  uint32_t offset = 0;
  if (bp_struct_read(theirs, first_size_bytes, &ours, sizeof(ours), &offset) == BP_OK) return BP_OK;
  return fail(BP_INCOMPATIBLE, std::string(name) + ": desc: byte " + std::to_string(offset) +
                                   " is not zero, and this host does not know it");
}

}  // namespace bp::core
