#include "conformance/cases/engine/host_call.hpp"

#include "backplane/host.h"
#include "registry/tensors/strides.hpp"

namespace bp::conformance {
namespace {

// Returns an address that is only compared. Such addresses lie apart, and none is NULL.
bp_buffer* imaginary_buffer(size_t number) {
  static std::byte places[64];
  return reinterpret_cast<bp_buffer*>(&places[number % std::size(places)]);
}

}  // namespace

void set_attributes(Frame& frame, const OpCase& op_case) {
  for (const Attribute& attribute : op_case.attributes) {
    if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
      frame.set_integer(attribute.name, *integer);
    } else if (const auto* number = std::get_if<double>(&attribute.value)) {
      frame.set_number(attribute.name, *number);
    } else if (const auto* list = std::get_if<Shape>(&attribute.value)) {
      frame.set_list(attribute.name, *list);
    } else {
      frame.set_scalar(attribute.name, std::get<bp_scalar>(attribute.value));
    }
  }
}

HostCall::HostCall(const OpCase& op_case) : case_(op_case), frame_(op_case.op) {
  set_attributes(frame_, op_case);
  for (const TensorArgument& argument : op_case.tensors) {
    Slot& slot = slots_.emplace_back();
    slot.shape = argument.shape;
    slot.placement = place(argument.layout, argument.shape);
    slot.view.buffer = imaginary_buffer(slots_.size());
    slot.view.byte_offset = tensors::packed_bytes(static_cast<uint64_t>(-slot.placement.lowest),
                                                  bp_dtype_bits(argument.dtype));
    slot.view.dtype = argument.dtype;
    const size_t own = slots_.size() - 1;
    for (size_t i = 0; i < own && !argument.alias.empty(); ++i) {
      if (op_case.tensors[i].name != argument.alias) continue;
      slot = slots_[i];
      break;
    }
  }
  refresh();
  for (size_t i = 0; i < slots_.size(); ++i) {
    const std::string_view name = op_case.tensors[i].name;
    if (op_info(op_case.op).member(name).is_list()) {
      frame_.add_tensor(name, &slots_[i].view);
    } else {
      frame_.set_tensor(name, &slots_[i].view);
    }
  }
}

void HostCall::refresh() {
  for (Slot& slot : slots_) {
    slot.view.shape = slot.shape.data();
    slot.view.strides = slot.placement.strides.data();
    slot.view.ndim = static_cast<uint32_t>(slot.shape.size());
  }
}

bp_status HostCall::check(std::string* out_text) { return check_call(case_.op, frame_, out_text); }

bp_status check_call(uint32_t op, const Frame& frame, std::string* out_text) {
  bp_error_clear();
  const bp_status status = bp_op_check(op, frame.data());
  if (out_text != nullptr) *out_text = bp_error_text();
  bp_error_clear();
  return status;
}

}  // namespace bp::conformance
