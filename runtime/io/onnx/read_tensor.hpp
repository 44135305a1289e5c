// Reads a TensorProto, and checks that its elements are there before any memory is allocated.
#pragma once

#include <onnx.pb.h>

#include <string>

#include "runtime/io/onnx/host_tensor.hpp"

namespace bp::onnx {

// Where the external data of a model may lie.
struct DataFolder {
  std::string path;  // Empty if the model may have no external data.
};

// Throws Error. `what` begins its messages: "model.onnx: initialiser 'w'".
HostTensor read_tensor(const ::onnx::TensorProto& proto, const DataFolder& folder,
                       const std::string& what);

// Fills `message` from `bytes`. Throws Error, in which `name` is the file and `kind` what it should
// hold, such as "an ONNX model".
void parse_message(google::protobuf::MessageLite& message, std::string_view bytes,
                   const std::string& name, const char* kind);

// Returns the bytes of a regular file of at most 2 GiB. Throws Error.
std::string read_whole(const std::string& path);

}  // namespace bp::onnx
