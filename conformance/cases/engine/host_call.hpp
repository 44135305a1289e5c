// A call of an op for the host's checks: a frame whose tensors lie in memory that does not exist.
// It needs no device, so lists of cases can ask which calls are legal.
#pragma once

#include <deque>
#include <string>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// Writes the attributes of `op_case` into `frame`, which borrows its lists.
void set_attributes(Frame& frame, const OpCase& op_case);

// Calls bp_op_check() and clears the error. `out_text`, if given, receives the text of the refusal.
bp_status check_call(uint32_t op, const Frame& frame, std::string* out_text);

class HostCall {
 public:
  // Gives each tensor its own buffer, except tensors with an alias.
  explicit HostCall(const OpCase& op_case);
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  Frame& frame() { return frame_; }

  // Returns the tensor of argument `index` of the case. The checks see changes to it.
  bp_tensor& tensor(size_t index) { return slots_[index].view; }
  Shape& shape(size_t index) { return slots_[index].shape; }
  Shape& strides(size_t index) { return slots_[index].placement.strides; }

  // Points the tensors at their shapes and strides again, after these have changed their size.
  void refresh();

  bp_status check(std::string* out_text = nullptr);
  bool is_legal() { return check() == BP_OK; }

 private:
  struct Slot {
    Shape shape;
    Placement placement;
    bp_tensor view{};
  };

  const OpCase& case_;
  Frame frame_;
  std::deque<Slot> slots_;
};

}  // namespace bp::conformance
