// What a capture that writes a program does not record.
#pragma once

#include <memory>
#include <string>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/services/cache_set.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

// Gives whether the launches on `stream` are written into a program.
inline bp_status find_program(const Target& target, bp_stream* stream, bool& out_is_in_program) {
  out_is_in_program = false;
  if (target.caches == nullptr || !target.caches->captures().any()) [[likely]] {
    return BP_OK;
  }
  std::shared_ptr<services::CaptureParts> parts;
  const bp_status status = target.caches->captures().find(stream, parts);
  out_is_in_program = parts != nullptr && parts->recorder() != nullptr;
  return status;
}

// Returns the same. The next call for a stream whose state cannot be found fails too.
inline bool is_in_program(const Target& target, bp_stream* stream) {
  bool is_in_program = false;
  if (find_program(target, stream, is_in_program) != BP_OK) static_cast<void>(take_error());
  return is_in_program;
}

// Returns BP_INVALID_ARGUMENT if the launches on `stream` are written into a program. `what` is not
// a launch of an op, and would run now.
inline bp_status refuse_in_program(const Target& target, bp_stream* stream, const char* what) {
  bool is_in_program = false;
  const bp_status status = find_program(target, stream, is_in_program);
  if (status != BP_OK || !is_in_program) return status;
  return fail(BP_INVALID_ARGUMENT,
              std::string(what) +
                  ": the stream captures a program, which has launches of ops, and "
                  "copies and fills on one device, alone; do this before or after "
                  "the capture");
}

}  // namespace bp::core
