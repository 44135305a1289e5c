#include "mapped.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tensors.h"

namespace bpt {
namespace {

using at::Tensor;

int find(const c10::FunctionSchema& schema, const std::string& name) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == name) return static_cast<int>(i);
  }
  return -1;
}

bool is_absent(const c10::IValue& value) {
  return value.isNone() || (value.isTensor() && !value.toTensor().defined());
}

// IValue calls integers above those of int64_t no scalars.
bool is_scalar(const c10::IValue& value) { return value.isScalar() || value.isUnsigned(); }

bool is_host_number(const c10::IValue& value) {
  if (is_scalar(value)) return true;
  return value.isTensor() && value.toTensor().device().type() != kBp && value.toTensor().dim() == 0;
}

at::Scalar number_of(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().item() : value.toScalar();
}

at::Scalar product(const at::Scalar& a, const at::Scalar& b) {
  if (a.isComplex() || b.isComplex()) throw Unsupported{"a scalar is complex"};
  if (a.isFloatingPoint() || b.isFloatingPoint()) return a.toDouble() * b.toDouble();
  return a.toLong() * b.toLong();
}

bool is_float(const Tensor& tensor) { return at::isFloatingType(tensor.scalar_type()); }

// A number takes part in the common dtype as PyTorch's wrapped numbers do: by its kind alone.
Tensor wrapped(const at::Scalar& number) {
  Tensor tensor = at::scalar_tensor(number, at::device(at::kCPU).dtype(number.type()));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace

void match_shape(const Tensor& out, const Tensor& result, bool is_inplace) {
  const at::IntArrayRef shape = result.sizes();
  if (out.sizes() == shape) return;
  TORCH_CHECK(!is_inplace, "output with shape ", out.sizes(), " doesn't match the broadcast shape ",
              shape);
  at::native::resize_output(out, shape);
  const bool is_dense = result.is_non_overlapping_and_dense();
  if (is_dense && !result.is_contiguous()) out.as_strided_(shape, result.strides());
}

// What elementwise operators have in common.
struct BoundRow::Elements {
  at::ScalarType type = at::kFloat;
  at::DimVector shape;
  std::optional<at::Device> device;
  bool is_broadcast = false;  // The tensors differ in shape.
};

struct BoundRow::State {
  explicit State(const Op& op) : call(op) {}

  Call call;
  Elements common;
  c10::SmallVector<Tensor, 4> inputs;  // As they were placed.
  Tensor first;                        // What the axes are those of.
  bool is_flat = false;
  std::optional<at::ScalarType> type;  // That of the result, where the caller chooses it.
};

BoundRow::BoundRow(const Row& row, const c10::FunctionSchema& schema)
    : row_(row), op_(op_named(row.op)) {
  std::istringstream words(row.binds);
  for (std::string word; words >> word;) bind(word, schema);
  dtype_ = find(schema, "dtype");
  alpha_ = find(schema, "alpha");
  value_ = find(schema, "value");
}

void BoundRow::bind(const std::string& word, const c10::FunctionSchema& schema) {
  Bind bind;
  const char mark = word[0];
  const size_t equals = word.find('=');
  const size_t begin = mark == '?' || mark == '~' || mark == '!' || mark == '+' ? 1 : 0;
  const std::string left =
      word.substr(begin, equals == std::string::npos ? equals : equals - begin);
  const std::string right = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (mark == '?' || mark == '~') {
    bind.kind = Bind::Kind::kGuard;
    bind.name = left;
    bind.aten = find(schema, left);
    bind.is_promoted = mark == '~';
    bind.word = right;
    if (right.find_first_not_of("-0123456789.") == std::string::npos)
      bind.number = std::stod(right);
  } else if (mark == '+') {
    bind.kind = Bind::Kind::kWanted;
    bind.argument = op_.at(left);
  } else {
    bind.is_plain = mark == '!';
    bind.argument = op_.at(left);
    if (right[0] == '#') {
      bind.kind = Bind::Kind::kNumber;
      bind.number = std::stod(right.substr(1));
    } else {
      bind.aten = find(schema, right);
      // The scale of addcmul(a, b, alpha) has the dtype of the tensors, not a say in it.
      bind.is_promoted = right != "alpha";
    }
  }
  if (first_tensor_ < 0 && bind.aten >= 0 && bind.argument >= 0 &&
      op_.arguments[bind.argument].is_tensor()) {
    first_tensor_ = static_cast<int>(binds_.size());
  }
  binds_.push_back(bind);
}

std::string BoundRow::problem() const {
  for (size_t i = 0; i < op_.arguments.size(); ++i) {
    const Argument& argument = op_.arguments[i];
    if (argument.kind != BP_ARGUMENT_TENSOR && argument.kind != BP_ARGUMENT_OPERAND) continue;
    const bool is_bound = std::any_of(binds_.begin(), binds_.end(), [&](const Bind& bind) {
      const bool is_given = bind.aten >= 0 || bind.kind == Bind::Kind::kNumber;
      return bind.argument == static_cast<int>(i) && is_given;
    });
    if (!is_bound) return "nothing is bound to " + argument.name + " of " + row_.op;
  }
  return "";
}

bool BoundRow::has_free_type(Values values) const {
  const bool is_given = (row_.flags & kDtype) && dtype_ >= 0 && !values[dtype_].isNone();
  return is_given && op_.first_out >= 0 &&
         op_.arguments[op_.first_out].description->dtype_count > 1;
}

void BoundRow::check_guards(Values values) const {
  for (const Bind& bind : binds_) {
    if (bind.kind != Bind::Kind::kGuard || bind.aten < 0) continue;
    const c10::IValue& value = values[bind.aten];
    bool is_met = false;
    if (is_absent(value)) {
      is_met = bind.word == "none";
    } else if (value.isString()) {
      is_met = value.toStringRef() == bind.word;
    } else if (value.isBool()) {
      is_met = bind.word != "none" && value.toBool() == (bind.number != 0);
    } else if (is_scalar(value) && !value.toScalar().isComplex()) {
      is_met = bind.word != "none" && value.toScalar().toDouble() == bind.number;
    }
    if (!is_met) {
      throw Unsupported{"the op " + std::string(row_.op) + " serves " + bind.name + " = " +
                        bind.word + " alone"};
    }
  }
}

BoundRow::Elements BoundRow::common_of(Values values) const {
  Elements common;
  at::native::ResultTypeState types = {};
  bool is_first = true;
  for (const Bind& bind : binds_) {
    if (bind.aten < 0 || !bind.is_promoted) continue;
    const c10::IValue& value = values[bind.aten];
    if (is_absent(value)) continue;
    const bool is_number = is_scalar(value);
    const bool is_attribute = bind.kind == Bind::Kind::kArgument &&
                              !op_.arguments[bind.argument].is_tensor() &&
                              !op_.arguments[bind.argument].is_value();
    if (is_attribute || (!is_number && !value.isTensor())) continue;
    const Tensor tensor = is_number ? wrapped(value.toScalar()) : value.toTensor();
    const bool has_say = !bind.is_plain && (!(row_.flags & kOfSelf) || is_first);
    if (has_say) types = at::native::update_result_type_state(tensor, types);
    if (is_number) continue;
    if (tensor.device().type() == kBp) {
      TORCH_CHECK(!common.device || *common.device == tensor.device(),
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  *common.device, " and ", tensor.device(), "!");
      common.device = tensor.device();
    }
    if (is_first) {
      common.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
      is_first = false;
    } else if (tensor.sizes() != at::IntArrayRef(common.shape)) {
      common.is_broadcast = true;
      common.shape = at::infer_size_dimvector(common.shape, tensor.sizes());
    }
  }
  if (!common.device) throw Unsupported{"no tensor is on the device"};
  common.type = at::native::result_type(types);
  if ((row_.flags & kBool) && common.type != at::kBool) throw Unsupported{"the dtype is not bool"};
  if ((row_.flags & kInteger) && !at::isIntegralType(common.type, true)) {
    throw Unsupported{"the dtype is not an integer"};
  }
  if ((row_.flags & kFloat) && at::isIntegralType(common.type, true)) {
    common.type = at::get_default_dtype_as_scalartype();
  }
  return common;
}

// The tensor in the dtype in which the op works.
Tensor BoundRow::converted(const State& state, const Bind& bind, Tensor tensor,
                           Values values) const {
  if (row_.flags & kElementwise) {
    if (!bind.is_plain && tensor.scalar_type() != state.common.type) {
      tensor = tensor.to(state.common.type);
    }
    const bool is_scaled = (row_.flags & kScaled) && op_.arguments[bind.argument].name == "b";
    if (is_scaled) {
      const at::Scalar scale = values[alpha_ >= 0 ? alpha_ : value_].toScalar();
      if (tensor.itemsize() == 2 && is_float(tensor))
        throw Unsupported{"it would be rounded twice"};
      if (!scale.equal(1)) tensor = at::mul(tensor, scale).to(state.common.type);
    }
    return tensor;
  }
  if (first_tensor_ < 0 || &bind != &binds_[first_tensor_]) return tensor;
  const bool has_dtype = (row_.flags & kDtype) && dtype_ >= 0 && !values[dtype_].isNone();
  if (has_dtype) return tensor.to(values[dtype_].toScalarType());
  if ((row_.flags & kFloat) && at::isIntegralType(tensor.scalar_type(), true)) {
    return tensor.to(at::get_default_dtype_as_scalartype());
  }
  return tensor;
}

void BoundRow::place_tensor(State& state, const Bind& bind, const Tensor& tensor) const {
  Tensor placed = tensor;
  const Argument& argument = op_.arguments[bind.argument];
  if ((row_.flags & kElementwise) && argument.kind != BP_ARGUMENT_SCALAR_TENSOR) {
    if (placed.sizes() != at::IntArrayRef(state.common.shape)) {
      placed = placed.expand(state.common.shape);
    }
  }
  state.inputs.push_back(placed);
  state.call.in(bind.argument, placed);
}

void BoundRow::place_number(State& state, const Bind& bind, const at::Scalar& number) const {
  if (op_.arguments[bind.argument].is_value()) {
    state.call.scalar(bind.argument, number);
    return;
  }
  const at::ScalarType type = bind.is_plain ? at::kBool : state.common.type;
  place_tensor(state, bind, full_0d(number, type, *state.common.device));
}

void BoundRow::place_attribute(State& state, const Bind& bind, const c10::IValue& value) const {
  const Argument& argument = op_.arguments[bind.argument];
  if (argument.kind == BP_ARGUMENT_I64_LIST) {
    std::vector<int64_t> list;
    if (value.isInt()) list.push_back(value.toInt());
    if (value.isIntList()) list = value.toIntVector();
    const int64_t rank = state.first.dim();
    if (list.empty()) {
      for (int64_t axis = 0; axis < rank; ++axis) list.push_back(axis);
    } else {
      for (int64_t& axis : list) axis = at::maybe_wrap_dim(axis, rank);
      if (rank == 0) list.clear();
    }
    state.call.ints(bind.argument, list);
  } else if (value.isString()) {
    state.call.choose(bind.argument, value.toStringRef());
  } else if (value.isDouble()) {
    state.call.set(bind.argument, value.toDouble());
  } else if (argument.name == "axis") {
    state.call.set(bind.argument, value.isNone() || state.is_flat
                                      ? int64_t{0}
                                      : at::maybe_wrap_dim(value.toInt(), state.first.dim()));
  } else if (value.isBool()) {
    state.call.set(bind.argument, static_cast<int64_t>(value.toBool()));
  } else if (value.isInt()) {
    state.call.set(bind.argument, value.toInt());
  }
}

void BoundRow::place(State& state, const Bind& bind, Values values) const {
  const Argument& argument = op_.arguments[bind.argument];
  if (bind.kind == Bind::Kind::kWanted) {
    state.call.want(bind.argument);
    return;
  }
  if (bind.kind == Bind::Kind::kNumber) {
    const bool is_whole = bind.number == std::floor(bind.number);
    place_number(
        state, bind,
        is_whole ? at::Scalar(static_cast<int64_t>(bind.number)) : at::Scalar(bind.number));
    return;
  }
  static const c10::IValue kNone;
  const c10::IValue& value = bind.aten >= 0 ? values[bind.aten] : kNone;
  if (!argument.is_tensor() && !argument.is_value()) {
    place_attribute(state, bind, value);
  } else if (!is_absent(value)) {
    place_value(state, bind, value, values);
  } else if (argument.kind != BP_ARGUMENT_OPTIONAL_TENSOR) {
    throw Unsupported{"the op " + std::string(row_.op) + " needs a tensor or number for " +
                      argument.name};
  }
}

// A tensor of the device, or a number that the host knows.
void BoundRow::place_value(State& state, const Bind& bind, const c10::IValue& value,
                           Values values) const {
  const Argument& argument = op_.arguments[bind.argument];
  const bool is_scale = bind.aten == alpha_;
  if (is_host_number(value) && ((row_.flags & kElementwise) || argument.is_value())) {
    at::Scalar number = number_of(value);
    if ((row_.flags & kNegated) && is_scale) number = product(number, -1);
    if ((row_.flags & (kAlpha | kScaled)) && argument.name == "b") {
      number = product(number, values[alpha_ >= 0 ? alpha_ : value_].toScalar());
    }
    place_number(state, bind, number);
    return;
  }
  if ((row_.flags & kAlpha) && argument.name == "b" && !values[alpha_].toScalar().equal(1)) {
    throw Unsupported{"alpha is not 1"};
  }
  Tensor tensor = converted(state, bind, value.toTensor(), values);
  if (!state.first.defined()) tensor = state.first = flattened(state, tensor, values);
  place_tensor(state, bind, tensor);
}

// Without an axis, argmax and its like take the tensor as one row.
Tensor BoundRow::flattened(State& state, const Tensor& tensor, Values values) const {
  for (const Bind& bind : binds_) {
    const bool is_axis = bind.argument >= 0 && op_.arguments[bind.argument].name == "axis";
    if (is_axis && (bind.aten < 0 || values[bind.aten].isNone()) && tensor.dim() > 1) {
      state.is_flat = true;
      return tensor.reshape({-1});
    }
  }
  return tensor;
}

Tensors BoundRow::run_into(Call& call, const State& state, const Tensor& out) const {
  const bp_op_output& inferred = call.infer();
  const auto type = state.type ? state.type : from_bp(inferred.dtype);
  const at::IntArrayRef shape(inferred.shape, inferred.ndim);
  if (out.sizes() != shape || !type || out.scalar_type() != *type || op_.first_out < 0) {
    return {};
  }
  bool is_shared = false;
  for (const Tensor& input : state.inputs) is_shared |= input.is_alias_of(out);
  call.out(op_.first_out, out);
  if (is_shared && !call.is_legal()) {
    call.forget(op_.first_out);
    return {};
  }
  call.run();
  return {out};
}

Tensors BoundRow::run(Values values, const Tensor* out) const {
  check_guards(values);
  State state(op_);
  if (row_.flags & kElementwise) {
    state.common = common_of(values);
    if (alpha_ >= 0) at::native::alpha_check(state.common.type, values[alpha_].toScalar());
  }
  for (const Bind& bind : binds_) {
    if (bind.kind != Bind::Kind::kGuard) place(state, bind, values);
  }
  if (has_free_type(values)) {
    state.type = values[dtype_].toScalarType();
    state.call.out_type(op_.first_out, *state.type);
  }
  const c10::DeviceGuard guard(state.call.device());
  Tensors results;
  if (out != nullptr) results = run_into(state.call, state, *out);
  if (results.empty()) {
    const bool is_elementwise = (row_.flags & kElementwise) != 0;
    results =
        state.call.run(is_elementwise ? state.inputs : at::TensorList(), state.common.is_broadcast);
  }
  const bool is_byte = (row_.flags & kKeepsByte) && state.first.scalar_type() == at::kByte;
  if (is_byte && results[0].scalar_type() == at::kBool) results[0] = results[0].to(at::kByte);
  if (state.is_flat) {
    // keepdim of the flattened tensor: an axis of 1 for each that it had.
    const Tensor& first = values[binds_[first_tensor_].aten].toTensor();
    if (results[0].dim() == 1) results[0] = results[0].reshape(at::DimVector(first.dim(), 1));
  }
  return results;
}

}  // namespace bpt
