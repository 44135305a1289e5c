// Inputs: what the caller gave becomes tensors and scalars on one device.
#include "frame.hpp"

#include <algorithm>
#include <cstring>

#include "backplane/runtime/autograd.hpp"
#include "promotion.hpp"

namespace bp::python {

Frame::Frame(const Op& op, PyObject* const* bound) : op_(op), bound_(bound), written_(op.written) {
  if (op.desc.frame_size_bytes > sizeof(bytes_)) {
    throw Error(BP_UNSUPPORTED, std::string(op.desc.name) + ": its frame has " +
                                    std::to_string(op.desc.frame_size_bytes) +
                                    " bytes; this binding takes " + std::to_string(sizeof(bytes_)));
  }
  std::memset(bytes_, 0, op.desc.frame_size_bytes);
  at<uint32_t>(0) = op.desc.frame_size_bytes;
  for (const uint32_t i : op.outputs) wanted_dtypes_[i] = 0;
  for (size_t i = 0; i < op.positional_count; ++i) read_input(op.parameters[i], bound[i]);
  for (size_t i = op.positional_count; i < op.parameters.size(); ++i) {
    const bool is_absent = bound[i] == nullptr || bound[i] == Py_None;
    if (!is_absent) read_choice(op.parameters[i], bound[i]);
  }
  if (op.has_operand) agree();
  for (size_t i = 0; i < op.positional_count; ++i) {
    const uint32_t index = op.parameters[i].argument;
    if (!op.arguments[index].is_tensor) read_attribute(index, bound[i]);
  }
}

void Frame::read_input(const Parameter& parameter, PyObject* value) {
  const Argument& a = op_.arguments[parameter.argument];
  if (!a.is_tensor) return;  // Attributes are read when the ranks of all tensors are known.
  if (value != nullptr && value != Py_None) return read_tensor(parameter.argument, value);
  if (parameter.is_required) {
    raise(PyExc_TypeError, place(op_, a) + " is None; allowed: a backplane.Tensor");
  }
  if (a.has_scalar && a.desc->default_value.dtype != 0) {
    at<bp_scalar>(a.offset + sizeof(void*)) = a.desc->default_value;
  }
}

// Reads what a keyword says of the outputs.
void Frame::read_choice(const Parameter& parameter, PyObject* value) {
  const uint32_t index = parameter.argument;
  switch (parameter.role) {
    case Parameter::Role::kOutput:
      if (value == Py_False) return;
      asked_ |= uint64_t{1} << index;
      if (value == Py_True) return;
      read_tensor(index, value);
      written_ |= uint64_t{1} << index;
      return;
    case Parameter::Role::kDtype:
      wanted_dtypes_[index] = to_dtype(value, PyUnicode_AsUTF8(parameter.name));
      return;
    case Parameter::Role::kShape:
      wanted_shape_ = to_ints(value, "shape");
      has_shape_ = true;
      return;
    case Parameter::Role::kDevice:
      use_device(index, to_device(value, "device"), "device");
      return;
    case Parameter::Role::kArgument:
      return;
  }
}

Frame::List& Frame::list_of(uint32_t index) {
  lists_.push_back({index, {}, {}, {}});
  return lists_.back();
}

const Frame::List* Frame::find_list(uint32_t index) const {
  const auto found = std::find_if(lists_.begin(), lists_.end(),
                                  [&](const List& list) { return list.index == index; });
  return found == lists_.end() ? nullptr : &*found;
}

// ---- Tensors ------------------------------------------------------------------------------------

void Frame::use_device(uint32_t index, const Device& device, const std::string& name) {
  const bp_target* const target = &device.target();
  if (target_ == nullptr) {
    target_ = target;
    first_ = index;
  } else if (target_ != target) [[unlikely]] {
    throw Error(BP_INVALID_ARGUMENT, std::string(op_.desc.name) + ": " + name + " is on " +
                                         target->name + ", and " + op_.arguments[first_].name +
                                         " on " + target_->name +
                                         "; allowed: one device. Move one with to(device)");
  }
}

void Frame::read_tensor(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  if (a.is_list) return read_list(index, value);
  if (is_tensor(value)) {
    const Tensor& tensor = tensor_of(value);
    use_device(index, tensor.device(), a.name);
    return set(index, tensor);
  }
  if ((a.has_scalar || (op_.has_operand && a.is_cast)) && is_number(value)) {
    return read_scalar(index, value);
  }
  raise(PyExc_TypeError,
        place(op_, a) + " is " + type_text(value) + "; allowed: a backplane.Tensor" +
            (a.has_scalar ? ", or a number" : "") + ". backplane.asarray() makes one");
}

void Frame::read_list(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  if (!PyList_Check(value) && !PyTuple_Check(value)) {
    raise(PyExc_TypeError, place(op_, a) + " is " + type_text(value) +
                               "; allowed: a list or tuple of backplane.Tensor");
  }
  List& list = list_of(index);
  for (const nb::handle item : nb::handle(value)) {
    if (!is_tensor(item)) {
      raise(PyExc_TypeError, place(op_, a) + " has " + type_text(item) +
                                 "; allowed: a list or tuple of backplane.Tensor");
    }
    use_device(index, tensor_of(item).device(), a.name);
    list.tensors.push_back(tensor_of(item));
  }
  for (const Tensor& tensor : list.tensors) list.views.push_back(tensor.get());
  at<uint64_t>(a.offset - sizeof(uint64_t)) = list.views.size();
  at<const bp_tensor* const*>(a.offset) = list.views.data();
}

// A number in place of a tensor waits in the frame's scalar, or in `bound_` for a tensor alone.
void Frame::read_scalar(uint32_t index, PyObject* value) {
  const Argument& a = op_.arguments[index];
  if (!a.has_scalar) return;
  at<bp_scalar>(a.offset + sizeof(void*)) = to_scalar(value, a.name.c_str()).get();
}

// ---- Ops with an operand
// --------------------------------------------------------------------------

bool Frame::agrees() const {
  const Tensor* first = nullptr;
  const Tensor* cast = nullptr;
  for (const uint32_t i : op_.group) {
    const Argument& a = op_.arguments[i];
    const Tensor& t = tensors_[i];
    if (!t) {
      if (!a.has_scalar) return false;
      continue;
    }
    if (a.is_cast && cast != nullptr && t.dtype() != cast->dtype()) return false;
    if (first != nullptr && !(t.shape() == first->shape())) return false;
    first = &t;
    if (a.is_cast) cast = &t;
  }
  if (cast == nullptr) return false;
  return is_float(cast->dtype()) || common_dtype() == cast->dtype();
}

bp_dtype Frame::common_dtype() const {
  bp_dtype dtype = 0;
  for (const uint32_t i : op_.group) {
    if (!op_.arguments[i].is_cast || !tensors_[i]) continue;
    const bp_dtype other = tensors_[i].dtype();
    const bp_dtype both = dtype == 0 ? other : promote(dtype, other);
    if (both == 0) {
      throw Error(BP_INVALID_ARGUMENT, std::string(op_.desc.name) + ": the inputs are " +
                                           dtype_text(dtype) + " and " + dtype_text(other) +
                                           ", and no dtype holds both; cast one with to(dtype)");
    }
    dtype = both;
  }
  for (size_t i = 0; i < op_.positional_count && dtype != 0; ++i) {
    const Argument& a = op_.arguments[op_.parameters[i].argument];
    const bool is_scalar = a.is_cast && !tensors_[op_.parameters[i].argument] &&
                           bound_[i] != nullptr && bound_[i] != Py_None;
    if (is_scalar) {
      dtype = promote_scalar(dtype, to_scalar(bound_[i], a.name.c_str()).get());
    }
  }
  if (op_.takes_floats_alone && dtype != 0 && !is_float(dtype)) return BP_F32;
  return dtype;
}

std::vector<int64_t> Frame::common_shape() const {
  std::vector<int64_t> shape;
  for (const uint32_t i : op_.group) {
    if (!tensors_[i]) continue;
    const IntList other = tensors_[i].shape();
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    for (size_t back = 1; back <= other.size(); ++back) {
      int64_t& extent = shape[shape.size() - back];
      const int64_t given = other[other.size() - back];
      if (given != 1 && extent != 1 && given != extent) {
        throw Error(BP_INVALID_ARGUMENT,
                    place(op_, op_.arguments[i]) + " has the shape " + to_string(other) +
                        ", and the inputs before it " + to_string(IntList(shape)) +
                        "; allowed: shapes whose extents, from the last one, are equal or 1");
      }
      if (extent == 1) extent = given;
    }
  }
  return shape;
}

void Frame::make_tensor_of_number(uint32_t index, bp_dtype dtype) {
  for (size_t i = 0; i < op_.positional_count; ++i) {
    if (op_.parameters[i].argument != index) continue;
    const Scalar value = to_scalar(bound_[i], op_.arguments[index].name.c_str());
    set(index, full({}, value, dtype, Device(*target_)));
  }
}

// The casts and the broadcasts are recorded, so that the gradient of the op needs none.
void Frame::agree() {
  if (agrees()) return;
  if (target_ == nullptr) {
    raise(PyExc_TypeError, std::string(op_.desc.name) +
                               ": the inputs are numbers; allowed: at least one backplane.Tensor");
  }
  const bp_dtype dtype = common_dtype();
  for (const uint32_t i : op_.group) {
    if (!tensors_[i] && !op_.arguments[i].has_scalar) make_tensor_of_number(i, dtype);
  }
  const std::vector<int64_t> shape = common_shape();
  for (const uint32_t i : op_.group) {
    const Argument& a = op_.arguments[i];
    if (!tensors_[i]) continue;
    Tensor t = a.is_cast ? converted(tensors_[i], dtype) : tensors_[i];
    if (!(t.shape() == IntList(shape))) t = t.expand(shape);
    set(i, t);
  }
}

}  // namespace bp::python
