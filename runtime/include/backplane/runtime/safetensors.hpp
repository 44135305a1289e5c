// Weights on disk, in the safetensors format (github.com/huggingface/safetensors, format 0.x): a
// length, a JSON header, and the elements.
//
//   bytes 0..7      N, little-endian u64: bytes of the header
//   bytes 8..8+N    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//   the rest        elements, row-major, little-endian; offsets count from here
//
// Errors: bp::Error that names the file and the field. Threads: safe, as long as nobody writes the
// same file or tensors.
#pragma once

#include <map>
#include <string>

#include "backplane/runtime/tensor.hpp"

namespace bp {

using TensorMap = std::map<std::string, Tensor>;  // By name, sorted.
using Metadata = std::map<std::string, std::string>;

// Writes all tensors. The file appears under its name only when it is complete: an interrupted save
// leaves the one before it, and so does a loss of power: the file is on disk when this returns. The
// bytes go to a new file in the same folder first, with the rights that the umask leaves. Waits for
// the work that the tensors depend on.
void save_safetensors(const std::string& path, const TensorMap& tensors,
                      const Metadata& metadata = {});

struct LoadedTensors {
  TensorMap tensors;
  Metadata metadata;
};

// Reads a whole file onto `device`. Everything is checked before the first tensor is made: lengths,
// JSON, dtypes, shapes, and that the elements lie without gaps and overlap.
LoadedTensors load_safetensors(const std::string& path, Device device = current_device());

}  // namespace bp
