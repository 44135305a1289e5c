// Writes models in ONNX's format, which is that of protobuf: fields with numbers, in any order. The
// importer of the runtime reads them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bpo {

// One message of protobuf under construction.
class Message {
 public:
  void add_integer(uint32_t field, int64_t value);
  void add_float(uint32_t field, float value);
  void add_bytes(uint32_t field, std::string_view value);  // Texts and messages too.
  const std::string& bytes() const { return bytes_; }

 private:
  void add_varint(uint64_t value);
  std::string bytes_;
};

// The version of each domain that the nodes of a graph need. The default domain is "".
using Opsets = std::map<std::string, int64_t>;

// Raises the versions in `opsets` to those of `more`.
void merge(Opsets& opsets, const Opsets& more);

// A tensor in memory of the host, which is borrowed: row-major without gaps.
struct ConstantView {
  std::string name;
  int32_t element_type = 0;  // A number of TensorProto.DataType.
  std::vector<int64_t> dims;
  std::string_view bytes;
};

// A graph: nodes and constants as written messages, inputs and outputs by name.
struct GraphParts {
  std::vector<std::string> nodes;      // NodeProto.
  std::vector<std::string> constants;  // TensorProto.
  std::vector<std::string> inputs, outputs;
};

std::string tensor_bytes(const ConstantView& constant);
std::string graph_bytes(const GraphParts& parts);
std::string model_bytes(const GraphParts& parts, const Opsets& opsets);

}  // namespace bpo
