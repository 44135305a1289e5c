#include "runtime/ops/dispatch.hpp"

#include <algorithm>
#include <string>

#include "backplane/runtime/ops.hpp"

namespace bp::detail {

std::vector<const bp_tensor*> Call::list(const char* name, std::span<const Tensor> tensors) {
  std::vector<const bp_tensor*> result;
  result.reserve(tensors.size());
  for (const Tensor& item : tensors) result.push_back(tensor(name, item));
  return result;
}

void Call::fail_missing(const char* name) const {
  fail(std::string(op_) + ": " + name + " is empty; allowed: a tensor");
}

void Call::fail_device(const char* name, const bp_target& target) const {
  fail(std::string(op_) + ": " + name + " is on " + target.name + ", and " + first_ + " on " +
       target_->name + "; allowed: one device");
}

void fail_output(const char* op, const char* name, const Tensor& y, const bp_target& target) {
  if (!y) Call(op).tensor(name, y);
  fail(std::string(op) + ": " + name + " is on " + target_of(y).name + ", and the inputs on " +
       target.name + "; allowed: one device");
}

void fail_recorded_write(const char* op) {
  fail(std::string(op) + ": a tensor requires a gradient, and writes in place are not recorded; " +
       "put them under a bp::NoGradGuard");
}

// ---- Elementwise inputs ------------------------------------------------------------------------

namespace {

[[noreturn]] void fail_promotion(const char* op, bp_dtype a, bp_dtype b) {
  fail(std::string(op) + ": a is " + dtype_text(a) + " and b is " + dtype_text(b) +
       ", and no dtype holds both; cast one with to()");
}

std::string shape_text(const bp_tensor& tensor) { return to_string(ints(dims::shape(tensor))); }

}  // namespace

void Elementwise::prepare(const char* op, Rule rule) {
  if (a_.tensor() == nullptr && b_.tensor() == nullptr) {
    fail(std::string(op) + ": a and b are numbers; allowed: at least one tensor");
  }
  Call call(op);
  const bp_tensor* a = call.operand("a", a_);
  const bp_tensor* b = call.operand("b", b_);
  target_ = &call.target();
  bp_dtype dtype = a == nullptr   ? promote_scalar(b->dtype, a_.scalar())
                   : b == nullptr ? promote_scalar(a->dtype, b_.scalar())
                                  : promote(a->dtype, b->dtype);
  if (dtype == 0) fail_promotion(op, a->dtype, b->dtype);
  if (rule == Rule::kDivide && !is_float(dtype)) dtype = BP_F32;

  const NoGradGuard guard;  // The gradient has its own casts and sums.
  if (a == nullptr) held_[0] = bp::fill({}, dtype, Device(*target_), Scalar(a_.scalar()));
  if (a != nullptr && a->dtype != dtype) held_[0] = a_.tensor()->to(dtype);
  if (b != nullptr && b->dtype != dtype) held_[1] = b_.tensor()->to(dtype);
  a_view_ = held_[0] ? held_[0].get() : a;
  b_view_ = held_[1] ? held_[1].get() : b;
  if (b != nullptr) broadcast(op);
}

void Elementwise::broadcast(const char* op) {
  const dims::View a = dims::shape(*a_view_);
  const dims::View b = dims::shape(*b_view_);
  const dims::Dims shape = dims::broadcast(a, b);
  if (shape.count == dims::kNone) {
    fail(std::string(op) + ": a has the shape " + to_string(ints(a)) + " and b " +
         to_string(ints(b)) + "; allowed: shapes whose extents, from the last one, are equal or 1");
  }
  std::copy_n(shape.data, shape.count, shape_);
  views_[0] = broadcast_view(*a_view_, {shape_, shape.count}, strides_[0]);
  views_[1] = broadcast_view(*b_view_, {shape_, shape.count}, strides_[1]);
  a_view_ = &views_[0];
  b_view_ = &views_[1];
}

bp_tensor broadcast_view(const bp_tensor& given, dims::View shape, int64_t* strides) {
  const int64_t lead = shape.count - given.ndim;
  for (int64_t axis = 0; axis < shape.count; ++axis) {
    const bool is_broadcast = axis < lead || given.shape[axis - lead] != shape.data[axis];
    strides[axis] = is_broadcast ? 0 : given.strides[axis - lead];
  }
  bp_tensor view = given;
  view.shape = shape.data;
  view.strides = strides;
  view.ndim = static_cast<uint32_t>(shape.count);
  return view;
}

TensorsAndOperand::TensorsAndOperand(const char* op, std::initializer_list<const char*> names,
                                     First first, std::initializer_list<const Tensor*> tensors,
                                     const Operand& operand)
    : operand_(operand), count_(names.size()) {
  Call call(op);
  const Tensor* given[kMost] = {};
  const bp_tensor* inputs[kMost] = {};
  std::copy(tensors.begin(), tensors.end(), given);
  for (size_t i = 0; i < tensors.size(); ++i) inputs[i] = call.tensor(names.begin()[i], *given[i]);
  given[count_ - 1] = operand.tensor();
  inputs[count_ - 1] = call.operand(names.begin()[count_ - 1], operand);
  target_ = &call.target();
  cast(inputs, first == First::kCondition ? 1 : 0, given, op);
  broadcast(inputs, names.begin(), op);
}

// Casts the inputs from `begin` on to one dtype.
void TensorsAndOperand::cast(const bp_tensor** inputs, size_t begin, const Tensor* const* given,
                             const char* op) {
  bp_dtype dtype = inputs[begin]->dtype;
  for (size_t i = begin + 1; i < count_; ++i) {
    const bp_dtype before = dtype;
    dtype =
        inputs[i] == nullptr ? promote_scalar(dtype, scalar()) : promote(dtype, inputs[i]->dtype);
    if (dtype == 0) fail_promotion(op, before, inputs[i]->dtype);
  }
  const NoGradGuard guard;  // The gradient has its own casts.
  for (size_t i = begin; i < count_; ++i) {
    if (inputs[i] == nullptr || inputs[i]->dtype == dtype) continue;
    held_[i] = given[i]->to(dtype);
    inputs[i] = held_[i].get();
  }
}

void TensorsAndOperand::broadcast(const bp_tensor* const* inputs, const char* const* names,
                                  const char* op) {
  dims::Dims shape(dims::shape(*inputs[0]));
  std::string earlier = names[0];
  for (size_t i = 1; i < count_; ++i) {
    if (inputs[i] == nullptr) continue;
    const dims::Dims common = dims::broadcast(shape, dims::shape(*inputs[i]));
    if (common.count == dims::kNone) {
      fail(std::string(op) + ": " + names[i] + " has the shape " + shape_text(*inputs[i]) +
           ", and " + earlier + " " + to_string(ints(shape)) +
           "; allowed: shapes whose extents, from the last one, are equal or 1");
    }
    shape = common;
    earlier += std::string(" and ") + names[i];
  }
  std::copy_n(shape.data, shape.count, shape_);
  for (size_t i = 0; i < count_; ++i) {
    if (inputs[i] == nullptr) continue;
    views_[i] = broadcast_view(*inputs[i], {shape_, shape.count}, strides_[i]);
  }
}

// ---- Promotion ---------------------------------------------------------------------------------

namespace {

bool is_signed(bp_dtype dtype) { return dtype >= BP_I8 && dtype <= BP_I64; }
bool is_unsigned(bp_dtype dtype) { return dtype >= BP_U8 && dtype <= BP_U64; }
bool is_wide_float(bp_dtype dtype) { return dtype >= BP_F16 && dtype <= BP_F64; }

bp_dtype promote_floats(bp_dtype a, bp_dtype b) {
  if (!is_wide_float(a) && !is_wide_float(b)) return BP_F32;  // Two different 8-bit formats.
  if (!is_wide_float(a)) return b;
  if (!is_wide_float(b)) return a;
  if (std::min(a, b) == BP_F16 && std::max(a, b) == BP_BF16) return BP_F32;
  return std::max(a, b);
}

}  // namespace

// Relies on base.h, where the dtypes i8..i64, u8..u64 and f16..f64 stand in the order of their
// width.
bp_dtype promote(bp_dtype a, bp_dtype b) {
  if (a == b) return a;
  if (a == BP_BOOL) return b;
  if (b == BP_BOOL) return a;
  if (is_float(a) && is_float(b)) return promote_floats(a, b);
  if (is_float(a) && (is_signed(b) || is_unsigned(b))) return a;
  if (is_float(b) && (is_signed(a) || is_unsigned(a))) return b;
  if ((is_signed(a) && is_signed(b)) || (is_unsigned(a) && is_unsigned(b))) return std::max(a, b);
  const bp_dtype with_sign = is_signed(a) ? a : b;
  const bp_dtype without = is_signed(a) ? b : a;
  if (!is_signed(with_sign) || !is_unsigned(without) || without == BP_U64) return 0;
  // A signed dtype holds every narrower unsigned dtype.
  return std::max(with_sign, without - BP_U8 + BP_I16);
}

bp_dtype promote_scalar(bp_dtype tensor, const bp_scalar& scalar) {
  if (scalar.dtype == BP_F64) return is_float(tensor) ? tensor : bp_dtype{BP_F32};
  if (scalar.dtype == BP_BOOL || tensor != BP_BOOL) return tensor;
  return BP_I64;
}

// ---- Attributes --------------------------------------------------------------------------------

namespace {

dims::Dims to_dims(const char* op, const char* name, IntList given) {
  if (given.size() > dims::Dims::kCapacity) {
    fail(std::string(op) + ": " + name + " has " + std::to_string(given.size()) +
         " numbers; allowed: up to " + std::to_string(dims::Dims::kCapacity));
  }
  return dims::Dims(dims::View{given.data(), static_cast<int64_t>(given.size())});
}

}  // namespace

dims::Dims resolve_list(const char* op, const char* name, IntList given, int64_t count) {
  const auto length = static_cast<int64_t>(given.size());
  const dims::Dims list = to_dims(op, name, given);
  if (length == 0 || count <= length || count % length != 0) return list;
  return dims::repeat(list, count / length);
}

dims::Dims resolve_axes(const char* op, const char* name, IntList given, int64_t ndim) {
  if (given.data() == kAllAxes.data()) {
    dims::Dims all;
    for (int64_t axis = 0; axis < ndim; ++axis) all.append(axis);
    return all;
  }
  dims::Dims axes = to_dims(op, name, given);
  for (int64_t i = 0; i < axes.count; ++i) {
    axes.data[i] = resolve_axis(op, name, axes.data[i], std::max<int64_t>(ndim, 1));
  }
  return axes;
}

int64_t ndim_of(const char* op, const char* name, std::span<const Tensor> tensors) {
  if (tensors.empty()) {
    fail(std::string(op) + ": " + name + " has no tensors; allowed: at least one");
  }
  return tensors[0].ndim();
}

std::pair<Tensor, Tensor> prepare_matmul(const Tensor& a, const Tensor& b) {
  if (!a || !b) fail(std::string("matmul: ") + (a ? "b" : "a") + " is empty; allowed: a tensor");
  if (a.ndim() < 2 || b.ndim() < 2) return {a, b};  // The checks of the op refuse these.
  const auto lead = [](const Tensor& x) { return dims::View{x.get()->shape, x.ndim() - 2}; };
  if (dims::operator==(lead(a), lead(b))) return {a, b};
  const dims::Dims shared = dims::broadcast(lead(a), lead(b));
  if (shared.count == dims::kNone) {
    fail("matmul: a has the shape " + to_string(a.shape()) + " and b " + to_string(b.shape()) +
         "; allowed: axes before the last two that are equal or 1");
  }
  const auto expanded = [&](const Tensor& x) {
    const dims::Dims shape =
        dims::concat(shared, dims::slice(shape_of(x), x.ndim() - 2, dims::kEnd));
    return x.expand(ints(shape));
  };
  return {expanded(a), expanded(b)};
}

}  // namespace bp::detail
