// Which recording is played, and how.
#pragma once

#include <cstdint>
#include <string>

namespace bp::conformance {

struct RecordingSource {
  std::string path;            // The folder, or its stream.jsonl; "": none is played.
  bool seeds_weights = false;  // Floats that the host copied in are drawn from the seed.
  bool is_partial = false;     // Calls that were not recorded are passed over.
  uint64_t seed = 0;
};

}  // namespace bp::conformance
