// The host library reports each failure in one way: a status, and a text in the thread's error
// slot.
#pragma once

#include <string>

#include "backplane/base.h"

namespace bp {

// Sets the calling thread's error text and returns `code`. If memory runs out, the text is lost,
// but not the status.
bp_status fail(bp_status code, const std::string& message) noexcept;

// The text of a failure to allocate the host's own records.
inline constexpr const char* kOutOfHostMemory =
    "the host has no memory left for its own records; free host memory and try again";

// Returns BP_OUT_OF_MEMORY from `call` for the host's own records.
bp_status out_of_host_memory(const char* call) noexcept;

// Returns BP_DEVICE_LOST from `name`, a call or an object, whose backend has been unloaded, or was
// loaded by the parent of this process.
bp_status backend_unloaded(const char* name);

// Returns BP_INVALID_ARGUMENT for an argument that must be given.
inline bp_status is_null(const char* what) {
  return fail(BP_INVALID_ARGUMENT, std::string(what) + " is NULL");
}

}  // namespace bp
