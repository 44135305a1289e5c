// One call of an op: the values of Python become a frame, and the frame is launched.
#pragma once

#include <vector>

#include "op.hpp"
#include "rules.hpp"

namespace bp::python {

class Frame {
 public:
  // `bound` has the value of each parameter, or NULL. The values outlive the frame.
  Frame(const Op& op, PyObject* const* bound);
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  nb::object run();

 private:
  // Reads what the caller gave.
  void read_input(const Parameter& parameter, PyObject* value);
  void read_choice(const Parameter& parameter, PyObject* value);
  void read_tensor(uint32_t index, PyObject* value);
  void read_list(uint32_t index, PyObject* value);
  void read_scalar(uint32_t index, PyObject* value);
  void use_device(uint32_t index, const Device& device, const std::string& name);

  // Makes the inputs of an op with an operand agree.
  void agree();
  bool agrees() const;
  void make_tensor_of_number(uint32_t index, bp_dtype dtype);
  bp_dtype common_dtype() const;
  std::vector<int64_t> common_shape() const;

  // Attributes, which count the axes of the tensors that were read.
  void read_attribute(uint32_t index, PyObject* value);
  void read_default(const Argument& argument);
  void read_i32(uint32_t index, PyObject* value);
  void read_u64(uint32_t index, PyObject* value);
  void read_f64(uint32_t index, PyObject* value);
  std::vector<int64_t> default_ints(const Argument& argument) const;
  void read_ints(uint32_t index, PyObject* value);
  int64_t read_integer(uint32_t index, PyObject* value) const;
  void read_enum(uint32_t index, PyObject* value);
  int64_t resolve_axis(const Argument& argument, int64_t axis) const;
  int64_t rank_for(const Argument& argument) const;
  RuleFacts facts() const;

  // Outputs.
  void check_choices(uint32_t index) const;
  void prepare_outputs();
  void make_outputs();
  void launch();
  void count_writes() const;
  nb::object result() const;

  // Gradients.
  uint64_t required_inputs() const;
  bool is_recorded() const;
  void check_unrecorded() const;
  void record();
  nb::dict kept_values(const Op::Recipe& recipe) const;
  nb::tuple versions(const Op::Recipe& recipe) const;
  nb::object places(const Op::Recipe& recipe, std::vector<Tensor>& inputs) const;
  nb::object value_of(uint32_t index, bool is_fact = false) const;
  nb::object attribute_of(uint32_t index) const;

  template <typename T>
  T& at(uint32_t offset) {
    return *reinterpret_cast<T*>(reinterpret_cast<char*>(bytes_) + offset);
  }
  template <typename T>
  const T& at(uint32_t offset) const {
    return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(bytes_) + offset);
  }
  void set(uint32_t index, const Tensor& tensor) {
    tensors_[index] = tensor;
    at<const bp_tensor*>(op_.arguments[index].offset) = tensor.get();
  }

  static constexpr size_t kMaxWords = 96;

  struct List {
    uint32_t index;
    std::vector<Tensor> tensors;
    std::vector<const bp_tensor*> views;
    std::vector<int64_t> ints;
  };
  List& list_of(uint32_t index);
  const List* find_list(uint32_t index) const;

  const Op& op_;
  PyObject* const* bound_;
  uint64_t bytes_[kMaxWords];  // The frame; what is behind it is not set.
  const bp_target* target_ = nullptr;
  uint32_t first_ = 0;                     // The argument that decided the device.
  Tensor tensors_[kMaxArguments];          // Inputs and outputs that are one tensor.
  uint64_t asked_ = 0;                     // Bit i: output i is made, or given.
  uint64_t written_;                       // Bit i: the op writes to tensors that exist already.
  bp_dtype wanted_dtypes_[kMaxArguments];  // Set for outputs alone.
  std::vector<int64_t> wanted_shape_;
  bool has_shape_ = false;  // The caller gave a shape.
  std::vector<List> lists_;
};

}  // namespace bp::python
