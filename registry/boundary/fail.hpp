// The one way the host library reports a failure: a status, and a text in the thread's error slot.
#pragma once

#include <string>

#include "backplane/base.h"

namespace bp {

// Sets the calling thread's error text and returns `code`. Out of memory loses the text, never the
// status.
bp_status fail(bp_status code, const std::string& message) noexcept;

// BP_INVALID_ARGUMENT for an argument that has to be given.
inline bp_status is_null(const char* what) {
  return fail(BP_INVALID_ARGUMENT, std::string(what) + " is NULL");
}

}  // namespace bp
