// The recording that a run plays, and how it plays it.
#pragma once

#include <cstdint>
#include <string>

namespace bp::conformance {

struct RecordingSource {
  std::string path;            // The folder, or its stream.jsonl; "" if no recording is played.
  bool seeds_weights = false;  // The seed decides the floats that the host copied in.
  bool is_partial = false;     // Calls that were not recorded are skipped.
  uint64_t seed = 0;
};

}  // namespace bp::conformance
