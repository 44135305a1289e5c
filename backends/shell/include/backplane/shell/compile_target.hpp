// What programs are compiled for: a device of this process, or a description of one elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/shell/program_bytes.hpp"
#include "backplane/shell/resolved.hpp"

namespace bp {

struct CompileTarget {
  bp_device* device = nullptr;  // NULL: the device is described.
  CompilerLimits limits;
  ProgramTarget names;
  Layouts* layouts = nullptr;  // NULL: the device has none.

  bool is_described() const { return device == nullptr; }
};

// Returns the target that a device of this process is.
CompileTarget target_of_device(const CompilerBackend& backend, bp_device* device);

// Writes what target_of_bytes() needs about a target.
std::vector<uint64_t> description_of(const CompilerBackend& backend, const CompileTarget& target);

// Reads what description_of() wrote in this or another process of this build. Throws StatusError of
// BP_INCOMPATIBLE, whose text begins with `call`, for all other bytes, and of BP_UNSUPPORTED if the
// kernels or layouts here are not those of the described device.
CompileTarget target_of_bytes(const CompilerBackend& backend, const void* data, uint64_t size_bytes,
                              const std::string& call);

}  // namespace bp
