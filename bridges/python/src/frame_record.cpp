// Calls that are recorded for gradients. The description has the gradient as formulas, which
// backplane/_autograd.py runs; the graph and the engine are the runtime's.
#include <bit>
#include <cstring>

#include "backplane/runtime/autograd.hpp"
#include "frame.hpp"

namespace bp::python {

namespace {

// Names a description for backplane/_autograd.py. It never changes, and lives until the process
// ends.
nb::int_ key_of(const bp_op_desc& desc) { return nb::int_(reinterpret_cast<uintptr_t>(&desc)); }

// A function of backplane/_autograd.py, which lives until the process ends.
nb::handle function_of(const char* name) {
  return nb::object(nb::module_::import_("backplane._autograd").attr(name)).release();
}

}  // namespace

const Op::Gradient& Op::gradient() const {
  if (gradient_) return *gradient_;
  const nb::object saved = function_of("saved_outputs")(desc.name, key_of(desc));
  Gradient made{!saved.is_none(), 0};
  for (size_t i = 0; made.exists && i < arguments.size(); ++i) {
    const bool is_saved =
        PySequence_Contains(saved.ptr(), nb::str(arguments[i].name.c_str()).ptr());
    if (arguments[i].is_output && is_saved) made.saved_outputs |= uint64_t{1} << i;
  }
  gradient_ = made;
  return *gradient_;
}

bool Frame::is_recorded() const {
  if (!is_grad_enabled()) return false;
  bool is_required = false;
  for (size_t i = 0; i < op_.arguments.size() && !is_required; ++i) {
    if (op_.arguments[i].is_tensor && tensors_[i]) is_required = tensors_[i].requires_grad();
  }
  for (const List& list : lists_) {
    for (const Tensor& tensor : list.tensors) is_required = is_required || tensor.requires_grad();
  }
  return is_required && (written_ != 0 || op_.gradient().exists);
}

void Frame::check_unrecorded() const {
  throw Error(BP_INVALID_ARGUMENT, std::string(op_.desc.name) +
                                       ": a tensor requires a gradient, and writes in place are "
                                       "not recorded; put them under backplane.no_grad()");
}

nb::object Frame::attribute_of(uint32_t index) const {
  const Argument& a = op_.arguments[index];
  switch (a.kind) {
    case BP_ARGUMENT_I32:
      return nb::int_(at<int32_t>(a.offset));
    case BP_ARGUMENT_I64:
      return nb::int_(at<int64_t>(a.offset));
    case BP_ARGUMENT_U64:
      return nb::int_(at<uint64_t>(a.offset));
    case BP_ARGUMENT_F64:
      return nb::float_(at<double>(a.offset));
    case BP_ARGUMENT_DTYPE:
      return nb::borrow(dtype_object(at<bp_dtype>(a.offset)));
    case BP_ARGUMENT_ENUM: {
      const uint32_t value = at<uint32_t>(a.offset) - a.desc->first_value;
      return nb::str(value < a.desc->value_count ? a.desc->value_names[value] : "");
    }
    default: {
      nb::list result;
      if (const List* list = find_list(index)) {
        for (const int64_t number : list->ints) result.append(number);
      }
      return result;
    }
  }
}

nb::object Frame::value_of(uint32_t index) const {
  const Argument& a = op_.arguments[index];
  if (!a.is_tensor) return attribute_of(index);
  if (a.is_list) {
    nb::list result;
    if (const List* list = find_list(index)) {
      for (const Tensor& tensor : list->tensors) result.append(tensor_object(tensor));
    }
    return result;
  }
  if (tensors_[index]) return tensor_object(tensors_[index]);
  if (!a.has_scalar) return nb::none();
  const bp_scalar& scalar = at<bp_scalar>(a.offset + sizeof(void*));
  if (scalar.dtype == BP_F64) return nb::float_(std::bit_cast<double>(scalar.bits));
  if (scalar.dtype == BP_U64) return nb::int_(scalar.bits);
  if (scalar.dtype == BP_BOOL) return nb::bool_(scalar.bits != 0);
  return scalar.dtype == 0 ? nb::object(nb::none())
                           : nb::object(nb::int_(static_cast<int64_t>(scalar.bits)));
}

// Puts tensors that are part of the graph in place of the outputs.
void Frame::record() {
  nb::dict values, outputs;
  for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
    const Argument& a = op_.arguments[i];
    (a.is_output ? outputs : values)[a.name.c_str()] = value_of(i);
  }
  static const nb::handle record_call = function_of("record");
  const nb::object made = record_call(op_.desc.name, key_of(op_.desc), values, outputs);
  for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
    if (!op_.arguments[i].is_output || !tensors_[i]) continue;
    tensors_[i] = tensor_of(made[op_.arguments[i].name.c_str()]);
  }
}

}  // namespace bp::python
