// What a capture that writes a program does not record.
#pragma once

#include <memory>
#include <string>

#include "registry/boundary/fail.hpp"
#include "registry/services/cache_set.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

// Returns BP_INVALID_ARGUMENT if the launches on `stream` are written into a program. `what` is not
// a launch of an op, and would run now.
inline bp_status refuse_in_program(const Target& target, bp_stream* stream, const char* what) {
  const services::Captures& captures = target.caches->captures();
  if (!captures.any()) [[likely]] {
    return BP_OK;
  }
  std::shared_ptr<services::CaptureParts> parts;
  const bp_status status = captures.find(stream, parts);
  if (status != BP_OK || parts == nullptr || parts->recorder() == nullptr) return status;
  return fail(BP_INVALID_ARGUMENT,
              std::string(what) +
                  ": the stream captures a program, which has launches of ops "
                  "(bp_op_launch, bp_copy_tensor on one device) alone; do this "
                  "before or after the capture");
}

}  // namespace bp::core
