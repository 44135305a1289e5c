// Builds models in memory, for tests.
#pragma once

#include <onnx.pb.h>

#include <string>
#include <vector>

#include "backplane/runtime/onnx.hpp"

namespace bp::onnx {

using Names = std::vector<std::string>;

inline ::onnx::AttributeProto attribute(const std::string& name, int64_t value) {
  ::onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(::onnx::AttributeProto::INT);
  proto.set_i(value);
  return proto;
}
inline ::onnx::AttributeProto attribute(const std::string& name, float value) {
  ::onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(::onnx::AttributeProto::FLOAT);
  proto.set_f(value);
  return proto;
}
inline ::onnx::AttributeProto attribute(const std::string& name, const char* value) {
  ::onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(::onnx::AttributeProto::STRING);
  proto.set_s(value);
  return proto;
}
inline ::onnx::AttributeProto attribute(const std::string& name,
                                        const std::vector<int64_t>& values) {
  ::onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(::onnx::AttributeProto::INTS);
  for (const int64_t value : values) proto.add_ints(value);
  return proto;
}
inline ::onnx::AttributeProto attribute(const std::string& name,
                                        const std::vector<std::string>& values) {
  ::onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(::onnx::AttributeProto::STRINGS);
  for (const std::string& value : values) proto.add_strings(value);
  return proto;
}
inline ::onnx::AttributeProto attribute(const std::string& name, const ::onnx::GraphProto& value) {
  ::onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_type(::onnx::AttributeProto::GRAPH);
  *proto.mutable_g() = value;
  return proto;
}

// Adds what a graph has, and returns itself, so that calls can be chained.
class GraphBuilder {
 public:
  explicit GraphBuilder(::onnx::GraphProto* graph) : graph_(graph) {}

  // A shape that is left out is unknown.
  GraphBuilder& input(const std::string& name, int32_t type = ::onnx::TensorProto::FLOAT,
                      const std::vector<int64_t>* shape = nullptr) {
    fill(graph_->add_input(), name, type, shape);
    return *this;
  }
  GraphBuilder& output(const std::string& name, int32_t type = ::onnx::TensorProto::FLOAT) {
    fill(graph_->add_output(), name, type, nullptr);
    return *this;
  }
  GraphBuilder& node(const std::string& op, const Names& inputs, const Names& outputs,
                     const std::vector<::onnx::AttributeProto>& attributes = {}) {
    auto* const proto = graph_->add_node();
    proto->set_op_type(op);
    for (const std::string& name : inputs) proto->add_input(name);
    for (const std::string& name : outputs) proto->add_output(name);
    for (const auto& one : attributes) *proto->add_attribute() = one;
    return *this;
  }
  GraphBuilder& floats(const std::string& name, const std::vector<int64_t>& dims,
                       const std::vector<float>& values) {
    auto* const proto = start(name, dims, ::onnx::TensorProto::FLOAT);
    for (const float value : values) proto->add_float_data(value);
    return *this;
  }
  GraphBuilder& ints(const std::string& name, const std::vector<int64_t>& dims,
                     const std::vector<int64_t>& values) {
    auto* const proto = start(name, dims, ::onnx::TensorProto::INT64);
    for (const int64_t value : values) proto->add_int64_data(value);
    return *this;
  }
  ::onnx::TensorProto* start(const std::string& name, const std::vector<int64_t>& dims,
                             int32_t type) {
    auto* const proto = graph_->add_initializer();
    proto->set_name(name);
    proto->set_data_type(type);
    for (const int64_t dim : dims) proto->add_dims(dim);
    return proto;
  }

 private:
  static void fill(::onnx::ValueInfoProto* info, const std::string& name, int32_t type,
                   const std::vector<int64_t>* shape) {
    info->set_name(name);
    auto* const tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    if (shape == nullptr) return;
    tensor->mutable_shape();
    for (const int64_t extent : *shape) {
      auto* const dim = tensor->mutable_shape()->add_dim();
      if (extent >= 0) dim->set_dim_value(extent);
    }
  }

  ::onnx::GraphProto* graph_;
};

// A model whose graph is empty at first.
struct TestModel {
  explicit TestModel(int64_t opset = 17) {
    proto.set_ir_version(8);
    proto.add_opset_import()->set_version(opset);
    proto.mutable_graph()->set_name("test");
  }
  GraphBuilder graph() { return GraphBuilder(proto.mutable_graph()); }
  std::string bytes() const { return proto.SerializeAsString(); }
  OnnxModel parse(Device device, bool needs_support = true) const {
    return OnnxModel::parse(bytes(), "test.onnx", device, needs_support);
  }

  ::onnx::ModelProto proto;
};

}  // namespace bp::onnx
