// The checks at the beginning of every entry of a backend's tables.
//
//   bp_status device_probe(void* self, uint64_t* out_device_count) {
//     return entry<Instance>(self, [&](const Instance& i) -> bp_status {
//       require(out_device_count, "device.probe: out_device_count");
//       ...
//     });
//   }
#pragma once

#include <cstdint>
#include <string>

#include "backplane/shell/boundary.hpp"

namespace bp {

[[noreturn]] inline void refuse(bp_status status, const std::string& text) {
  throw StatusError(status, text);
}

// Throws StatusError if `pointer`, which `text` names, is NULL.
inline void require(const void* pointer, const char* text) {
  if (pointer == nullptr) refuse(BP_INVALID_ARGUMENT, std::string(text) + " is NULL");
}

// Refuses a call whose wait ran out of time.
[[noreturn]] inline void refuse_timeout(const char* call, uint64_t timeout_ns) {
  refuse(BP_TIMEOUT,
         std::string(call) + ": the work did not end within " + std::to_string(timeout_ns) + " ns");
}

// A base of instances, each of which is bound to one host.
struct HostedInstance {
  // Leaves `text` in the host's error slot, and returns `status`.
  bp_status fail(bp_status status, const std::string& text) const {
    return host->set_error(host->self, status, text.c_str());
  }

  const bp_host* host;
};

// Runs body(const Instance&), which returns a status or throws, for an entry of a table whose
// `self` is an Instance.
template <typename Instance, typename Body>
bp_status entry(void* self, Body&& body) {
  const Instance& i = *static_cast<Instance*>(self);
  return guarded(*i.host, [&]() -> bp_status { return body(i); });
}

}  // namespace bp
