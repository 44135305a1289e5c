// Reads elements that lie in a file of their own beside the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bp::onnx {

// Where the elements are, as the entries of external_data say it.
struct ExternalPlace {
  std::string location;
  uint64_t offset = 0;
  uint64_t length = 0;
  bool has_length = false;
};

// Returns the `needed_bytes` bytes at `place`. The location must be a relative path without "..",
// to a regular file that also lies in `folder` after all links are followed. Everything is checked
// before memory is allocated. Throws Error; `what` begins its messages.
std::vector<uint8_t> read_external(const std::string& folder, const ExternalPlace& place,
                                   uint64_t needed_bytes, const std::string& what);

}  // namespace bp::onnx
