// Reads files of one array, as numpy.save() writes them.
#pragma once

#include <string>

#include "runtime/io/onnx/host_tensor.hpp"

namespace bp::onnx {

// The array must be little-endian, row-major, and of bool, integers or floats. Throws Error, which
// names the file.
HostTensor load_npy(const std::string& path);

}  // namespace bp::onnx
