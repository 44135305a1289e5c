#include "call.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cstring>

#include "launch.h"
#include "memory.h"
#include "streams.h"
#include "strides.h"
#include "tensors.h"

namespace bpt {
namespace {

template <typename T>
void put(unsigned char* frame, uint32_t offset, T value) {
  std::memcpy(frame + offset, &value, sizeof(value));
}

const void* pointer_at(const unsigned char* frame, uint32_t offset) {
  const void* pointer;
  std::memcpy(&pointer, frame + offset, sizeof(pointer));
  return pointer;
}

bp_scalar make_scalar(const at::Scalar& value) {
  bp_scalar scalar{};
  if (value.isComplex()) throw Unsupported{"a scalar is complex"};
  if (value.isBoolean()) {
    scalar.dtype = BP_BOOL;
    scalar.bits = value.toBool() ? 1 : 0;
  } else if (value.isFloatingPoint()) {
    const double real = value.toDouble();
    scalar.dtype = BP_F64;
    std::memcpy(&scalar.bits, &real, sizeof(real));
  } else if (value.isUnsigned()) {
    scalar.dtype = BP_U64;
    scalar.bits = value.toUInt64();
  } else {
    const int64_t integer = value.toLong();
    scalar.dtype = BP_I64;
    std::memcpy(&scalar.bits, &integer, sizeof(integer));
  }
  return scalar;
}

bp_launch_flags launch_flags() {
  return at::globalContext().deterministicAlgorithms() ? BP_LAUNCH_DETERMINISTIC : 0;
}

}  // namespace

Call::Call(const Op& op) : op_(op) { std::memcpy(frame_, op.frame.data(), op.frame.size()); }

c10::Device Call::device() const {
  if (!device_) throw Unsupported{"no tensor is on the device"};
  return *device_;
}

bp_tensor* Call::new_view() {
  if (view_count_ < views_.size()) {
    views_[view_count_] = {};
    return &views_[view_count_++];
  }
  return more_views_.emplace_back(std::make_unique<bp_tensor>()).get();
}

const bp_tensor* Call::make(const at::Tensor& tensor) {
  const c10::Device own = tensor.device();
  if (C10_UNLIKELY(own.type() != kBp || (device_ && *device_ != own))) {
    TORCH_CHECK(own.type() == kBp, "Expected all tensors to be on the same device, but one of ",
                op_.description->name, " is on ", own, " and not on bp.");
    TORCH_CHECK(*device_ == own, "Expected all tensors to be on the same device, but those of ",
                op_.description->name, " are on ", *device_, " and ", own, ".");
  }
  device_ = own;
  const bp_dtype dtype = to_bp(tensor.scalar_type());
  if (dtype == 0) throw Unsupported{c10::str("the library has no dtype ", tensor.scalar_type())};
  if (tensor.dim() > BP_MAX_RANK) throw Unsupported{"a tensor has more than 8 axes"};
  if (tensor.layout() != at::kStrided || tensor.is_neg() || tensor.is_conj()) {
    throw Unsupported{"a tensor is not strided, or is a lazy negative or conjugate"};
  }
  kept_.push_back(tensor);
  bp_tensor& view = *new_view();
  if (tensor.numel() != 0) {
    const bp_buffer_ref place = place_of(tensor);
    view.buffer = place.buffer;
    view.byte_offset = place.byte_offset;
  }
  // The tensor is kept, and so are its shape and strides: nothing changes them during the call.
  view.shape = kept_.back().sizes().data();
  view.strides = kept_.back().strides().data();
  view.ndim = static_cast<uint32_t>(tensor.dim());
  view.dtype = dtype;
  return &view;
}

Call& Call::in(int argument, const at::Tensor& tensor) {
  put(frame_, op_.arguments[argument].offset, make(tensor));
  return *this;
}

Call& Call::in_if(std::string_view name, const std::optional<at::Tensor>& tensor) {
  if (tensor && tensor->defined()) in(name, *tensor);
  return *this;
}

Call& Call::list(std::string_view name, at::TensorList tensors) {
  const Argument& argument = op_.arguments[op_.at(name)];
  auto& pointers = lists_.emplace_back();
  for (const at::Tensor& tensor : tensors) pointers.push_back(make(tensor));
  put<uint64_t>(frame_, argument.offset - sizeof(uint64_t), pointers.size());
  put(frame_, argument.offset, pointers.data());
  return *this;
}

Call& Call::scalar(int argument, const at::Scalar& value) {
  put(frame_, op_.arguments[argument].offset + sizeof(void*), make_scalar(value));
  return *this;
}

Call& Call::word(std::string_view name, uint64_t value) {
  bp_scalar scalar{};
  scalar.dtype = BP_U64;
  scalar.bits = value;
  put(frame_, op_.arguments[op_.at(name)].offset + sizeof(void*), scalar);
  return *this;
}

Call& Call::set_integer(int argument, int64_t value) {
  const Argument& own = op_.arguments[argument];
  switch (own.kind) {
    case BP_ARGUMENT_I32:
      put(frame_, own.offset, static_cast<int32_t>(value));
      break;
    case BP_ARGUMENT_ENUM:
      put(frame_, own.offset, own.description->first_value + static_cast<uint32_t>(value));
      break;
    case BP_ARGUMENT_I64:
    case BP_ARGUMENT_U64:
      put(frame_, own.offset, value);
      break;
    case BP_ARGUMENT_F64:
      put(frame_, own.offset, static_cast<double>(value));
      break;
    default:
      throw Unsupported{"the argument " + own.name + " is no number"};
  }
  return *this;
}

Call& Call::set_real(int argument, double value) {
  const Argument& own = op_.arguments[argument];
  if (own.kind != BP_ARGUMENT_F64) {
    throw Unsupported{"the argument " + own.name + " is not a real number"};
  }
  put(frame_, own.offset, value);
  return *this;
}

Call& Call::choose(int argument, std::string_view value) {
  const bp_op_argument& own = *op_.arguments[argument].description;
  for (uint32_t i = 0; i < own.value_count; ++i) {
    if (value == own.value_names[i]) return set(argument, i);
  }
  throw Unsupported{c10::str("the op ", op_.description->name, " has no ", own.name, " ", value)};
}

Call& Call::ints(int argument, at::IntArrayRef values) {
  const Argument& own = op_.arguments[argument];
  const auto& list = int_lists_.emplace_back(values.begin(), values.end());
  put<uint64_t>(frame_, own.offset - sizeof(uint64_t), list.size());
  put(frame_, own.offset, list.data());
  return *this;
}

Call& Call::want(int argument) {
  wanted_.push_back(argument);
  return *this;
}

Call& Call::out_type(int argument, at::ScalarType type) {
  types_.emplace_back(argument, type);
  return *this;
}

const bp_op_output& Call::infer() {
  uint32_t count = 0;
  const auto capacity = static_cast<uint32_t>(inferred_.size());
  if (bp_op_infer(op_.number, frame_, capacity, inferred_.data(), &count) != BP_OK) {
    throw Unsupported{bp_error_text()};
  }
  return inferred_[0];
}

bool Call::is_legal() const { return bp_op_is_valid(op_.number, frame_) != 0; }

void Call::forget(int argument) {
  put<const void*>(frame_, op_.arguments[argument].offset, nullptr);
}

c10::SmallVector<at::Tensor, 2> Call::run(at::TensorList like, bool is_broadcast) {
  infer();
  const c10::Device target = device();
  c10::SmallVector<at::Tensor, 2> outs;
  size_t next = 0;
  for (size_t i = 0; i < op_.arguments.size(); ++i) {
    const Argument& own = op_.arguments[i];
    if (!own.is_out()) continue;
    const int index = static_cast<int>(i);
    const bp_op_output& inferred = inferred_[next++];
    if (pointer_at(frame_, own.offset) != nullptr) continue;
    const bool is_wanted = std::find(wanted_.begin(), wanted_.end(), index) != wanted_.end();
    if (own.kind == BP_ARGUMENT_OPTIONAL_OUT && !is_wanted) continue;
    const at::IntArrayRef shape(inferred.shape, inferred.ndim);
    auto type = from_bp(inferred.dtype);
    for (const auto& [argument, wanted_type] : types_) {
      if (argument == index) type = wanted_type;
    }
    if (!type) throw Unsupported{"PyTorch has no dtype of an output"};
    const auto strides = strides_of_result(shape, like, is_broadcast);
    outs.push_back(new_empty(shape, *type, target,
                             strides ? std::optional<at::IntArrayRef>(*strides) : std::nullopt));
    out(index, outs.back());
  }
  launch();
  return outs;
}

void Call::go() {
  if (bp_op_check(op_.number, frame_) != BP_OK) throw Unsupported{bp_error_text()};
  launch();
}

void Call::launch() { bpt::launch(op_, device(), frame_); }

void launch(const Op& op, c10::Device device, const void* frame) {
  require_open();
  const bp_target* target = target_of(device);
  bp_stream* stream = current_stream(device.index());
  const bp_status status = bp_op_launch(target, stream, launch_flags(), op.number, frame);
  if (C10_LIKELY(status == BP_OK)) return;
  if (status == BP_UNSUPPORTED || status == BP_INVALID_ARGUMENT) {
    throw Unsupported{bp_error_text()};
  }
  if (status == BP_STREAM_FAILED || status == BP_DATA_FAILURE) {
    raise_failure_of(target, current_stream_of(device), status, op.description->name);
  }
  raise(status, op.description->name);
}

}  // namespace bpt
