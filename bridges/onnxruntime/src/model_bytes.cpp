#include "model_bytes.hpp"

#include <algorithm>
#include <cstring>

namespace bpo {
namespace {

// How a field's value is written: the low bits of its tag.
enum : uint32_t { kVarint = 0, kLength = 2, kFixed32 = 5 };

// The version of the format itself; opsets say which operators there are.
constexpr int64_t kIrVersion = 8;

}  // namespace

void Message::add_varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

void Message::add_integer(uint32_t field, int64_t value) {
  add_varint(field << 3 | kVarint);
  add_varint(static_cast<uint64_t>(value));
}

void Message::add_float(uint32_t field, float value) {
  add_varint(field << 3 | kFixed32);
  char raw[sizeof(value)];
  std::memcpy(raw, &value, sizeof(value));
  bytes_.append(raw, sizeof(raw));
}

void Message::add_bytes(uint32_t field, std::string_view value) {
  add_varint(field << 3 | kLength);
  add_varint(value.size());
  bytes_.append(value);
}

void merge(Opsets& opsets, const Opsets& more) {
  for (const auto& [domain, version] : more) {
    opsets[domain] = std::max(opsets[domain], version);
  }
}

std::string tensor_bytes(const ConstantView& constant) {
  Message tensor;
  for (const int64_t dim : constant.dims) tensor.add_integer(1, dim);
  tensor.add_integer(2, constant.element_type);
  tensor.add_bytes(8, constant.name);
  tensor.add_bytes(9, constant.bytes);
  return tensor.bytes();
}

std::string graph_bytes(const GraphParts& parts) {
  const auto value_info = [](const std::string& name) {
    Message info;
    info.add_bytes(1, name);
    return info.bytes();
  };
  Message graph;
  for (const std::string& node : parts.nodes) graph.add_bytes(1, node);
  graph.add_bytes(2, "partition");
  for (const std::string& constant : parts.constants) graph.add_bytes(5, constant);
  for (const std::string& input : parts.inputs) graph.add_bytes(11, value_info(input));
  for (const std::string& output : parts.outputs) graph.add_bytes(12, value_info(output));
  return graph.bytes();
}

std::string model_bytes(const GraphParts& parts, const Opsets& opsets) {
  Message model;
  model.add_integer(1, kIrVersion);
  model.add_bytes(2, "Backplane's provider for ONNX Runtime");
  model.add_bytes(7, graph_bytes(parts));
  for (const auto& [domain, version] : opsets) {
    Message entry;
    entry.add_bytes(1, domain);
    entry.add_integer(2, version);
    model.add_bytes(8, entry.bytes());
  }
  return model.bytes();
}

}  // namespace bpo
