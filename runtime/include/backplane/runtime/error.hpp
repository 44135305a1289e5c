// The one way a failure of the C side becomes a C++ exception.
#pragma once

#include <stdexcept>
#include <string>

#include "backplane/host.h"

namespace bp {

// Thrown by everything in the runtime. what() names the op or call, the argument, what was given
// and what is allowed; code() is the status that the C side gave or would have given.
class Error : public std::runtime_error {
 public:
  Error(bp_status code, const std::string& message) : std::runtime_error(message), code_(code) {}
  bp_status code() const { return code_; }

 private:
  bp_status code_;
};

namespace detail {

// Throws what this thread's error slot says. `call` is put before it unless it is NULL.
[[noreturn]] void throw_status(bp_status status, const char* call);

}  // namespace detail

// Throws Error unless `status` is BP_OK, with the text in this thread's error slot. `call` names
// the C function, for the message: "stream.create: unsupported: no free queue".
inline void check(bp_status status, const char* call) {
  if (status != BP_OK) [[unlikely]]
    detail::throw_status(status, call);
}

}  // namespace bp
