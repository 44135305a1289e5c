// What the cases of shared memory and shared events have in common: handles between processes.
#pragma once

#include <unistd.h>

#include "backplane/base.h"

namespace bp::conformance {

constexpr bp_external_handle blank_handle() {
  return {.struct_size = sizeof(bp_external_handle),
          .struct_type = BP_STRUCT_EXTERNAL_HANDLE,
          .fd = -1};
}

// Closes the descriptor of a handle that has one, which may be of a short struct. False if it was
// not open any more.
inline bool close_descriptor(const bp_external_handle& handle) {
  return handle.type != BP_EXTERNAL_FD || handle.fd < 0 || ::close(handle.fd) == 0;
}

// A handle that was exported. Its descriptor is closed with it.
struct Exported {
  Exported() = default;
  explicit Exported(const bp_external_handle& its_handle) : handle(its_handle) {}
  Exported(Exported&& other) noexcept : handle(other.handle) { other.handle.fd = -1; }
  ~Exported() { close(); }

  bool close() {
    const bool was_open = close_descriptor(handle);
    handle.fd = -1;
    return was_open;
  }

  bp_external_handle handle = blank_handle();
};

}  // namespace bp::conformance
