// One call of an op: its frame is filled by names, its outputs are allocated, and it is launched.
//
//   const at::Tensor y = Call("softmax").in("x", x).set("axis", 1).run_one();
//
// A call that the device or the library does not take throws Unsupported, before anything was
// submitted. A failure of earlier work throws PyTorch's AcceleratorError.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "op.h"

namespace bpt {

class Call {
 public:
  explicit Call(std::string_view op) : Call(op_named(op)) {}
  explicit Call(const Op& op);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Call& in(int argument, const at::Tensor& tensor);
  Call& in(std::string_view name, const at::Tensor& tensor) { return in(op_.at(name), tensor); }
  Call& in_if(std::string_view name, const std::optional<at::Tensor>& tensor);
  Call& list(std::string_view name, at::TensorList tensors);

  // A number in the place of a tensor: an operand or a scalar.
  Call& scalar(int argument, const at::Scalar& value);
  Call& scalar(std::string_view name, const at::Scalar& value) {
    return scalar(op_.at(name), value);
  }
  Call& word(std::string_view name, uint64_t value);

  // An attribute of any kind of number; a choice is counted from the first of its values.
  template <typename T>
  Call& set(int argument, T value) {
    if constexpr (std::is_integral_v<T>) return set_integer(argument, value);
    return set_real(argument, static_cast<double>(value));
  }
  template <typename T>
  Call& set(std::string_view name, T value) {
    return set(op_.at(name), value);
  }
  Call& choose(int argument, std::string_view value);
  Call& choose(std::string_view name, std::string_view value) {
    return choose(op_.at(name), value);
  }
  Call& ints(int argument, at::IntArrayRef values);
  Call& ints(std::string_view name, at::IntArrayRef values) { return ints(op_.at(name), values); }

  Call& out(int argument, const at::Tensor& tensor) { return in(argument, tensor); }
  Call& out(std::string_view name, const at::Tensor& tensor) { return in(name, tensor); }
  Call& want(int argument);  // An optional output, which run() then allocates.
  Call& want(std::string_view name) { return want(op_.at(name)); }
  Call& out_type(int argument, at::ScalarType type);  // Of an output whose dtype is free.
  Call& out_type(std::string_view name, at::ScalarType type) {
    return out_type(op_.at(name), type);
  }

  // Infers, allocates the outputs that are wanted and not given, and launches. The result has an
  // entry for each output that was allocated, in the order of the frame. Outputs with the shape of
  // the tensors `like` have the strides of an elementwise result of these (strides.h).
  c10::SmallVector<at::Tensor, 2> run(at::TensorList like = {}, bool is_broadcast = false);
  at::Tensor run_one(at::TensorList like = {}) { return run(like)[0]; }

  // Launches; every output was given.
  void go();

  // Shape and dtype of the first output.
  const bp_op_output& infer();

  // True if the frame with all that was given is legal: the outputs may lie where they do.
  bool is_legal() const;
  void forget(int argument);  // Takes an output back out of the frame.

  c10::Device device() const;

 private:
  Call& set_integer(int argument, int64_t value);
  Call& set_real(int argument, double value);
  bp_tensor* new_view();
  const bp_tensor* make(const at::Tensor& tensor);
  void launch();

  const Op& op_;
  std::optional<c10::Device> device_;
  // The frame points to these: the views are never moved, nor is what stands inside a list.
  std::array<bp_tensor, 8> views_;
  size_t view_count_ = 0;
  std::vector<std::unique_ptr<bp_tensor>> more_views_;
  c10::SmallVector<at::Tensor, 6> kept_;
  std::vector<std::vector<const bp_tensor*>> lists_;
  std::vector<std::vector<int64_t>> int_lists_;
  c10::SmallVector<int, 4> wanted_;
  c10::SmallVector<std::pair<int, at::ScalarType>, 2> types_;
  std::array<bp_op_output, 8> inferred_;
  alignas(8) unsigned char frame_[kMaxFrameSize];
};

}  // namespace bpt
