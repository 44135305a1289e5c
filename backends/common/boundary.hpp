// The one place where C++ becomes C: no exception crosses the boundary.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "backplane/backend.h"

namespace bp {

// A failure with its text, for code below the boundary that cannot return a status.
class StatusError : public std::exception {
 public:
  StatusError(bp_status status, std::string text) : status_(status), text_(std::move(text)) {}
  bp_status status() const { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  bp_status status_;
  std::string text_;
};

// Runs `body`, which returns a bp_status or throws, and leaves the text of a thrown failure in the
// host's error slot.
template <typename Body>
bp_status guarded(const bp_host& host, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const StatusError& e) {
    return host.set_error(host.self, e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return host.set_error(host.self, BP_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& e) {
    return host.set_error(host.self, BP_INTERNAL, e.what());
  } catch (...) {
    return host.set_error(host.self, BP_INTERNAL, "unknown exception");
  }
}

// Reads the _desc of the function named `call`, from any build of the host; NULL is all zero.
// `struct_type` is what it must say it is. Throws StatusError.
template <typename Desc>
Desc read_desc(const Desc* theirs, uint32_t first_size_bytes, uint32_t struct_type,
               const char* call) {
  Desc ours{};
  if (theirs == nullptr) return ours;
  const std::string name = std::string(call) + ": desc: ";
  uint32_t offset = 0;
  const bp_status status = bp_struct_read(theirs, first_size_bytes, &ours, sizeof(Desc), &offset);
  if (status != BP_OK) {
    throw StatusError(status, name + "byte " + std::to_string(offset) + " is not understood");
  }
  if (ours.struct_type != struct_type) {
    throw StatusError(BP_INVALID_ARGUMENT, name + "struct_type is " +
                                               std::to_string(ours.struct_type) + ", not " +
                                               std::to_string(struct_type));
  }
  for (auto* link = static_cast<const bp_struct_header*>(ours.next); link != nullptr;
       link = static_cast<const bp_struct_header*>(link->next)) {
    if ((link->struct_type & BP_STRUCT_MUST_UNDERSTAND) != 0) {
      throw StatusError(
          BP_INCOMPATIBLE,
          name + "a link of type " + std::to_string(link->struct_type) + " is not understood");
    }
  }
  return ours;
}

}  // namespace bp
