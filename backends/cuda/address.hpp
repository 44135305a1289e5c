// Where a range of a buffer lies, for those who need nothing else of buffers.
#pragma once

#include <cstddef>

#include "backplane/memory.h"

namespace bp::cuda {

// Returns the address of a range, or NULL if it has no buffer. The handle must have been checked
// before.
std::byte* address_of(const bp_buffer_ref& range);

}  // namespace bp::cuda
