// Whether a stream captures, for code that serves devices with and without captures.
#pragma once

#include "backplane/stream.h"
#include "registry/boundary/error_slot.hpp"

namespace bp::services {

// Returns whether the stream captures. No stream of a device without captures does.
inline bool is_capturing(const bp_target& target, bp_stream* stream) {
  const bp_stream_ops& streams = *target.streams;
  uint32_t is_capturing = 0;
  if (streams.is_capturing(streams.self, stream, &is_capturing) == BP_OK) {
    return is_capturing != 0;
  }
  static_cast<void>(core::take_error());
  return false;
}

}  // namespace bp::services
