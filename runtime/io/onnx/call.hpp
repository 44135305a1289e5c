// One node at work: its inputs and attributes, as the functions of operators ask for them. Every
// failure is a bp::Error about the input or the attribute; run_graph() adds which node it was.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/io/onnx/model.hpp"
#include "runtime/io/onnx/value.hpp"

namespace bp::onnx {

// The values that are known at one place of a graph. A subgraph sees those around it too.
struct Scope {
  const Graph* graph = nullptr;
  const Scope* outer = nullptr;
  std::map<std::string, Value> values;

  // Returns NULL if nobody has made the value.
  const Value* find(const std::string& name) const;
};

class Call {
 public:
  Call(const Node& node, Values inputs, Device device, const Scope& scope)
      : node_(node), inputs_(std::move(inputs)), device_(device), scope_(scope) {}

  Device device() const { return device_; }
  const Scope& scope() const { return scope_; }
  const std::string& op() const { return node_.info.op_type; }
  int64_t opset() const { return node_.info.opset; }
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return node_.outputs.size(); }

  // ---- Inputs ---------------------------------------------------------------------------------

  bool has(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  bool wants(size_t i) const;  // Whether output `i` has a name.

  // value() and input() throw if the input is not given. optional() returns an empty tensor then.
  const Value& value(size_t i) const;
  Tensor input(size_t i) const { return value(i).on(device_); }
  Tensor optional(size_t i) const { return has(i) ? input(i) : Tensor(); }
  std::vector<Tensor> all_inputs() const;  // At least one.

  // Read the elements of an input on the host. ints() takes integers only.
  std::vector<int64_t> ints(size_t i) const;
  std::vector<double> doubles(size_t i) const;
  int64_t integer(size_t i) const;  // The input has one element.
  double number(size_t i) const;

  // ---- Attributes: each throws if the attribute has another type -------------------------------

  bool has(const char* name) const { return node_.find(name) != nullptr; }
  int64_t integer(const char* name, int64_t otherwise) const;
  int64_t required_integer(const char* name) const;
  double number(const char* name, double otherwise) const;
  std::string text(const char* name, const std::string& otherwise) const;
  std::vector<int64_t> integers(const char* name, const std::vector<int64_t>& otherwise) const;
  std::vector<double> numbers(const char* name, const std::vector<double>& otherwise) const;
  std::vector<std::string> texts(const char* name, const std::vector<std::string>& otherwise) const;
  const HostTensor& tensor(const char* name) const;
  const Graph& graph(const char* name) const;
  bool flag(const char* name, bool otherwise) const;           // 0 or 1.
  bp_dtype dtype(const char* name, bp_dtype otherwise) const;  // A number of TensorProto.DataType.

  // Returns the integers of attribute `name`, or of input `i` where an operator moved them there.
  std::vector<int64_t> attribute_or_input(const char* name, size_t i,
                                          const std::vector<int64_t>& otherwise) const;

  // Says that the node draws random numbers, so that two runs differ.
  void note_random() const { is_random_ = true; }
  bool is_random() const { return is_random_; }

  // ---- Failures -------------------------------------------------------------------------------

  [[noreturn]] void refuse(const std::string& why) const;       // The model is wrong.
  [[noreturn]] void unsupported(const std::string& why) const;  // The importer lacks it.

  // Returns an axis from 0 on. `extent` is how many there are.
  int64_t axis(int64_t given, int64_t ndim) const;
  std::vector<int64_t> axes(std::vector<int64_t> given, int64_t ndim) const;

 private:
  const Attribute* find(const char* name, Attribute::Kind kind) const;

  const Node& node_;
  Values inputs_;
  Device device_;
  const Scope& scope_;
  mutable bool is_random_ = false;
};

// Runs the nodes of `graph` and returns its outputs. `given` has the values of its inputs.
Values run_graph(const Graph& graph, std::map<std::string, Value> given, Device device,
                 const Scope* outer, const OnnxModel::Observer* observer = nullptr);

}  // namespace bp::onnx
