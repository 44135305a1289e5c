// The dtypes that this copy of the library knows: those of the ABI, and those of vendors that it
// has handed out. The functions of host.h that name dtypes have no registry, so all registries of
// the library share the list.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "backplane/base.h"

namespace bp::core {

// How many dtypes of vendors were handed out. Their numbers begin at BP_DTYPE_VENDOR_FIRST.
extern std::atomic<uint32_t> vendor_dtype_count;

// Returns whether the host knows `dtype`. No key of a selection has an unknown dtype.
inline bool is_known_dtype(bp_dtype dtype) {
  return dtype - 1 < BP_U2 ||
         dtype - BP_DTYPE_VENDOR_FIRST < vendor_dtype_count.load(std::memory_order_acquire);
}
static_assert(BP_BOOL == 1);

// Returns the name of `dtype`, or text like "dtype 77" if it is not known.
std::string dtype_text(bp_dtype dtype);

}  // namespace bp::core
