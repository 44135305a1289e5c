// The versions of the ABI that this host serves. No other part of the host knows the version of the
// headers, except for the layer oldabi. registry/future.cmake compiles served_abi.cpp again for
// libraries of other versions.
#pragma once

#include <cstdint>
#include <string>

namespace bp::core {

// The majors and minors that a host or a plugin serves. `minor_min` counts in major 0 alone.
struct AbiRange {
  uint32_t major_min, major;
  uint32_t minor_min, minor;
};

// What this host serves. It is for one major.
extern const AbiRange kServedAbi;

// Returns whether this host serves a plugin of `plugin`. From major 1 on the minors do not decide.
bool serves_abi(const AbiRange& plugin);

// Returns "major.minor".
std::string abi_text(uint32_t major, uint32_t minor);

// Returns what this host serves, such as "ABI 0.3 to 0.3".
std::string served_abi_text();

}  // namespace bp::core
