// What a capture that writes a program does not record.
#pragma once

#include <memory>
#include <string>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/services/cache_set.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

// Gives the capture that writes the launches on `stream` into a program, or NULL.
inline bp_status find_program(const Target& target, bp_stream* stream,
                              std::shared_ptr<services::CaptureParts>& out_parts) {
  out_parts = nullptr;
  if (target.caches == nullptr || !target.caches->captures().any()) [[likely]] {
    return BP_OK;
  }
  const bp_status status = target.caches->captures().find(stream, out_parts);
  if (out_parts != nullptr && out_parts->recorder() == nullptr) out_parts = nullptr;
  return status;
}

// Returns whether there is one. The next call for a stream whose state cannot be found fails too.
inline bool is_in_program(const Target& target, bp_stream* stream) {
  std::shared_ptr<services::CaptureParts> parts;
  if (find_program(target, stream, parts) != BP_OK) static_cast<void>(take_error());
  return parts != nullptr;
}

// Returns BP_INVALID_ARGUMENT if the launches on `stream` are written into a program. `what` is not
// a launch of an op, and would run now.
inline bp_status refuse_in_program(const Target& target, bp_stream* stream, const char* what) {
  std::shared_ptr<services::CaptureParts> parts;
  const bp_status status = find_program(target, stream, parts);
  if (status != BP_OK || parts == nullptr) return status;
  return fail(BP_INVALID_ARGUMENT,
              std::string(what) +
                  ": the stream captures a program, which has launches of ops, and "
                  "copies and fills on one device, alone; do this before or after "
                  "the capture");
}

}  // namespace bp::core
