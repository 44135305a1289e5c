#include "conformance/cases/engine/op_case.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace bp::conformance {
namespace {

std::vector<DoubleDouble> make_data(const TensorArgument& argument, uint64_t key, uint32_t number) {
  const int64_t count = element_count(argument.shape);
  const Placement placement = place(argument.layout, argument.shape);
  const int64_t last_extent = argument.shape.empty() ? 1 : argument.shape.back();
  std::vector<DoubleDouble> data;
  data.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t stored = stored_index(placement, argument.shape, i);
    ElementPlace at{static_cast<uint64_t>(stored), 0, stored % last_extent, last_extent};
    at.first = stored / last_extent % last_extent;
    std::byte bytes[8] = {};
    store_element(argument.dtype, fill_element(argument.fill, argument.dtype, key, number, at),
                  bytes);
    data.push_back(load_element(argument.dtype, bytes));
  }
  return data;
}

}  // namespace

bp_scalar float_scalar(double value) { return {BP_F64, 0, std::bit_cast<uint64_t>(value)}; }
bp_scalar integer_scalar(int64_t value) { return {BP_I64, 0, static_cast<uint64_t>(value)}; }
bp_scalar unsigned_scalar(uint64_t value) { return {BP_U64, 0, value}; }

DoubleDouble scalar_value(const bp_scalar& scalar) {
  if (scalar.dtype == BP_F64) return std::bit_cast<double>(scalar.bits);
  std::byte bytes[sizeof(scalar.bits)];
  std::copy_n(reinterpret_cast<const std::byte*>(&scalar.bits), sizeof(bytes), bytes);
  return load_element(scalar.dtype, bytes);
}

CallData::CallData(const OpCase& op_case, uint64_t key) : case_(&op_case) {
  for (uint32_t i = 0; i < op_case.tensors.size(); ++i) {
    const TensorArgument& argument = op_case.tensors[i];
    HostTensor tensor{argument.name, argument.role, argument.dtype, argument.shape, {}};
    const bool is_same = argument.role == Role::kInput && !argument.alias.empty();
    if (is_same) tensor.data = this->tensor(argument.alias).data;
    if (argument.role != Role::kOutput && !is_same) tensor.data = make_data(argument, key, i);
    tensors_.push_back(std::move(tensor));
  }
  if (op_case.derive) op_case.derive(*this);
}

size_t CallData::list_size(std::string_view name) const {
  return static_cast<size_t>(std::ranges::count(tensors_, name, &HostTensor::name));
}

bool CallData::has(std::string_view name, size_t position) const {
  return position < list_size(name);
}

HostTensor& CallData::tensor(std::string_view name, size_t position) {
  for (HostTensor& tensor : tensors_) {
    if (tensor.name == name && position-- == 0) return tensor;
  }
  throw std::out_of_range("the case has no tensor '" + std::string(name) + "'");
}

const HostTensor& CallData::tensor(std::string_view name, size_t position) const {
  return const_cast<CallData*>(this)->tensor(name, position);
}

uint32_t CallData::op() const { return case_->op; }

const Attribute* CallData::find_attribute(std::string_view name) const {
  const auto found = std::ranges::find(case_->attributes, name, &Attribute::name);
  return found == case_->attributes.end() ? nullptr : &*found;
}

bool CallData::has_attribute(std::string_view name) const {
  return find_attribute(name) != nullptr;
}

const Attribute& CallData::attribute(std::string_view name) const {
  const Attribute* found = find_attribute(name);
  if (found == nullptr) {
    throw std::out_of_range("the case has no attribute '" + std::string(name) + "'");
  }
  return *found;
}

DoubleDouble CallData::value(std::string_view name) const {
  if (has(name)) return tensor(name).data.at(0);
  return scalar_value(get<bp_scalar>(name));
}

DoubleDouble CallData::operand(std::string_view name, bp_dtype x) const {
  std::byte bytes[8] = {};
  store_element(accumulator_of(x), value(name), bytes);
  return load_element(accumulator_of(x), bytes);
}

std::string OpCase::id() const {
  std::string text = "op." + std::string(op_info(op).name);
  for (const std::string* part : {&dtype, &fill, &detail, &layout}) text += "." + *part;
  return text;
}

std::vector<Expected> OpCase::expected(const CallData& data, const Numerics& numerics) const {
  const RelaxedMath math(numerics.relaxed);
  return reference(data, numerics);
}

OpCase& OpCase::input(std::string_view name, bp_dtype element, Shape shape, Fill data,
                      Layout lies) {
  tensors.push_back({name, Role::kInput, element, std::move(shape), lies, data, ""});
  return *this;
}

OpCase& OpCase::output(std::string_view name, bp_dtype element, Shape shape, Layout lies) {
  tensors.push_back({name, Role::kOutput, element, std::move(shape), lies, {}, ""});
  return *this;
}

OpCase& OpCase::inout(std::string_view name, bp_dtype element, Shape shape, Fill data,
                      Layout lies) {
  tensors.push_back({name, Role::kInOut, element, std::move(shape), lies, data, ""});
  return *this;
}

OpCase make_case(uint32_t op, bp_dtype dtype, std::string fill, std::string detail,
                 std::string layout) {
  OpCase made;
  made.op = op;
  made.dtype = dtype_text(dtype);
  made.fill = std::move(fill);
  made.detail = std::move(detail);
  made.layout = std::move(layout);
  return made;
}

std::string shape_text(const Shape& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const int64_t extent : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  }
  return text;
}

}  // namespace bp::conformance
