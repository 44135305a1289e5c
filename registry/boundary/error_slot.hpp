// The text of the latest failure on each thread.
//
// A status is four bytes, so the text beside it travels through a slot that the host owns: a
// backend fills it with bp_host::set_error, and the host's own functions with fail().
#pragma once

#include <string>

#include "backplane/base.h"

namespace bp::core {

// Implements bp_host::set_error. NULL is an empty text.
bp_status set_error(void* self, bp_status status, const char* message) noexcept;

// Moves the calling thread's text out of the slot. It is empty if no failure filled the slot since.
std::string take_error();

}  // namespace bp::core
