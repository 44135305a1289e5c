// Weights on disk, in the safetensors format (github.com/huggingface/safetensors, format 0.x). A
// file has a length, a JSON header, and the elements.
//
//   bytes 0..7      N, the number of bytes of the header, as a little-endian u64
//   bytes 8..8+N    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//   the rest        elements, row-major, little-endian; offsets count from here
//
// Errors are a bp::Error that names the file and the field. The functions are safe from any thread,
// as long as no other thread writes the same file or tensors.
#pragma once

#include <map>
#include <string>

#include "backplane/runtime/tensor.hpp"

namespace bp {

using TensorMap = std::map<std::string, Tensor>;  // By name, sorted.
using Metadata = std::map<std::string, std::string>;

// Writes all tensors and waits for the work that they depend on. The bytes go to a new file in the
// same folder first, whose rights follow the umask. That file gets the name `path` only when it is
// complete, so an interrupted save leaves the earlier file as it was. When the call returns, the
// new file is on disk and survives a loss of power.
void save_safetensors(const std::string& path, const TensorMap& tensors,
                      const Metadata& metadata = {});

struct LoadedTensors {
  TensorMap tensors;
  Metadata metadata;
};

// Reads a whole file onto `device`. Everything is checked before the first tensor is made: lengths,
// JSON, dtypes, shapes, and that the elements lie without gaps or overlap.
LoadedTensors load_safetensors(const std::string& path, Device device = current_device());

}  // namespace bp
