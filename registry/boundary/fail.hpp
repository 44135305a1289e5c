// The one way the host library reports a failure: a status, and a text in the thread's error slot.
#pragma once

#include <string>

#include "backplane/base.h"

namespace bp {

// Sets the calling thread's error text and returns `code`. Out of memory loses the text, never the
// status.
bp_status fail(bp_status code, const std::string& message) noexcept;

// What the host says if it has no memory for its own records.
inline constexpr const char* kOutOfHostMemory =
    "the host has no memory left for its own records; free host memory and try again";

// BP_OUT_OF_MEMORY of `call` for the host's own records.
bp_status out_of_host_memory(const char* call) noexcept;

// BP_DEVICE_LOST of `name`, a call or an object, whose backend is not loaded any more.
bp_status backend_unloaded(const char* name);

// BP_INVALID_ARGUMENT for an argument that has to be given.
inline bp_status is_null(const char* what) {
  return fail(BP_INVALID_ARGUMENT, std::string(what) + " is NULL");
}

}  // namespace bp
