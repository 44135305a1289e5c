// Outputs: their dtypes and shapes are inferred, memory is taken, and the op is launched.
#include <algorithm>

#include "backplane/runtime/autograd.hpp"
#include "frame.hpp"

namespace bp::python {
namespace {

// Tells an op which dtype and shape its output shall have.
bp_tensor stub(bp_dtype dtype, const std::vector<int64_t>& shape, const int64_t* strides) {
  return {nullptr, 0, shape.data(), strides, static_cast<uint32_t>(shape.size()), dtype, nullptr,
          0,       0, nullptr};
}

constexpr int64_t kStrides[BP_MAX_RANK] = {};

// The dtype of an output whose shape the caller gives, and no dtype: what the description says,
// else f32, or the first dtype of those that are allowed without f32.
bp_dtype default_dtype(const bp_op_argument& output) {
  for (const char* const rule : {output.default_dtype, output.dtype_rule}) {
    const bp_dtype named = rule == nullptr ? bp_dtype{0} : bp_dtype_from_name(rule);
    if (named != 0) return named;
  }
  const bp_dtype* const end = output.dtypes + output.dtype_count;
  const bool has_f32 = output.dtype_count == 0 || std::find(output.dtypes, end, BP_F32) != end;
  return has_f32 ? bp_dtype{BP_F32} : output.dtypes[0];
}

}  // namespace

// What the caller chooses must be true of an output that the caller gives, and a shape must be said
// by one of the two.
void Frame::check_choices(uint32_t index) const {
  const Argument& a = op_.arguments[index];
  const Tensor& given = tensors_[index];
  if (!given) {
    if (!a.is_given_shape || has_shape_) return;
    raise(PyExc_TypeError, std::string(op_.desc.name) + ": shape is missing, or " + a.name +
                               ", a tensor to write to");
  }
  const bp_dtype wanted = wanted_dtypes_[index];
  const bool has_shape =
      !a.is_given_shape || !has_shape_ || given.shape() == IntList(wanted_shape_);
  if ((wanted == 0 || wanted == given.dtype()) && has_shape) return;
  throw Error(BP_INVALID_ARGUMENT,
              place(op_, a) + " is " + dtype_text(given.dtype()) + " " + to_string(given.shape()) +
                  ", and another dtype or shape was asked for; leave that out");
}

void Frame::prepare_outputs() {
  for (const uint32_t i : op_.outputs) {
    const Argument& a = op_.arguments[i];
    if (a.is_list && find_list(i) == nullptr) {
      throw Error(BP_UNSUPPORTED, place(op_, a) +
                                      " is a list of outputs; allowed: a list of "
                                      "tensors that the op writes to");
    }
    check_choices(i);
    if (!a.is_given_shape || tensors_[i]) continue;
    if (target_ == nullptr) target_ = &default_device().target();
    if (wanted_dtypes_[i] == 0) wanted_dtypes_[i] = default_dtype(*a.desc);
  }
  if (target_ == nullptr) {
    raise(PyExc_TypeError,
          std::string(op_.desc.name) + ": no tensor was given, so there is no device to run on");
  }
}

// Infers the outputs, and makes those that the caller did not give.
void Frame::make_outputs() {
  bp_tensor stubs[kMaxArguments];
  const std::vector<int64_t> none;
  for (const uint32_t i : op_.outputs) {
    const Argument& a = op_.arguments[i];
    if (!a.is_free || tensors_[i]) continue;
    stubs[i] = stub(wanted_dtypes_[i], a.is_given_shape ? wanted_shape_ : none, kStrides);
    at<const bp_tensor*>(a.offset) = &stubs[i];
  }
  bp_op_output outputs[kMaxArguments];
  uint32_t count = 0, next = 0;
  check_host(bp_op_infer(op_.desc.op, bytes_, kMaxArguments, outputs, &count));
  for (const uint32_t i : op_.outputs) {
    if (next == count) break;
    const Argument& a = op_.arguments[i];
    const bp_op_output& made = outputs[next++];
    if (tensors_[i]) continue;
    at<const bp_tensor*>(a.offset) = nullptr;
    if (a.is_optional && ((asked_ >> i) & 1) == 0) continue;
    set(i, empty({made.shape, made.ndim}, made.dtype, Device(*target_)));
  }
}

void Frame::launch() {
  if (wanted_shape_.size() > BP_MAX_RANK) {
    throw Error(BP_INVALID_ARGUMENT, std::string(op_.desc.name) + ": shape has " +
                                         std::to_string(wanted_shape_.size()) +
                                         " extents; allowed: up to 8");
  }
  const Released released;
  make_outputs();
  if (written_ != 0) check_host(bp_op_check(op_.desc.op, bytes_));
  check(bp_op_launch(target_, current_stream(*target_), 0, op_.desc.op, bytes_), op_.desc.name);
}

void Frame::count_writes() const {
  for (uint32_t i = 0; i < op_.arguments.size(); ++i) {
    if (((written_ >> i) & 1) == 0) continue;
    if (tensors_[i]) tensors_[i].mark_written();
    if (const List* list = find_list(i)) {
      for (const Tensor& tensor : list->tensors) tensor.mark_written();
    }
  }
}

// The first output, and those behind it that the caller asked for.
nb::object Frame::result() const {
  nb::object first;
  nb::object all;
  for (const uint32_t i : op_.outputs) {
    const Argument& a = op_.arguments[i];
    if (!tensors_[i] || (a.is_optional && ((asked_ >> i) & 1) == 0)) continue;
    nb::object made = tensor_object(tensors_[i]);
    if (!first.is_valid()) {
      first = std::move(made);
      continue;
    }
    if (!all.is_valid()) {
      all = nb::list();
      nb::cast<nb::list>(all).append(first);
    }
    nb::cast<nb::list>(all).append(made);
  }
  if (!first.is_valid()) return nb::none();
  return all.is_valid() ? nb::object(nb::tuple(all)) : first;
}

nb::object Frame::run() {
  prepare_outputs();
  const bool is_graph = is_recorded();
  if (is_graph && written_ != 0) check_unrecorded();
  const uint64_t asked = asked_;
  if (is_graph) asked_ |= op_.gradient().saved_outputs;
  launch();
  if (written_ != 0) count_writes();
  if (is_graph) record();
  asked_ = asked;
  return result();
}

}  // namespace bp::python
