// Turns the bytes of a model into graphs of nodes, and checks them.
#pragma once

#include <string>

#include "runtime/io/onnx/model.hpp"
#include "runtime/io/onnx/read_tensor.hpp"

namespace bp::onnx {

// Throws Error. `name` begins its messages. `constants` are for inputs of the model.
LoadedModel read_model(std::string bytes, const std::string& name, const DataFolder& folder,
                       Device device, const TensorMap& constants = {});

}  // namespace bp::onnx
