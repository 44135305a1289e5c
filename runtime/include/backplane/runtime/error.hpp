// This header has the one way in which a failure of the C side becomes a C++ exception.
#pragma once

#include <stdexcept>
#include <string>

#include "backplane/host.h"

namespace bp {

// Every failure in the runtime throws Error. what() names the op or call, the argument, the given
// value and what is allowed. code() is the status that the C side gave or would have given.
class Error : public std::runtime_error {
 public:
  Error(bp_status code, const std::string& message) : std::runtime_error(message), code_(code) {}
  bp_status code() const { return code_; }

 private:
  bp_status code_;
};

namespace detail {

// Throws Error with the text of this thread's error slot, and `call` before it unless `call` is
// NULL.
[[noreturn]] void throw_status(bp_status status, const char* call);

}  // namespace detail

// Throws Error with the text of this thread's error slot unless `status` is BP_OK. `call` names the
// C function in the message: "stream.create: unsupported: no free queue".
inline void check(bp_status status, const char* call) {
  if (status != BP_OK) [[unlikely]]
    detail::throw_status(status, call);
}

}  // namespace bp
