// Shapes, constants, and views that only change the shape.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

Values shape_of(const Call& call) {
  const std::vector<int64_t> shape = call.value(0).shape();
  const auto ndim = static_cast<int64_t>(shape.size());
  const auto clip = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + ndim : i, 0, ndim); };
  const int64_t begin = clip(call.integer("start", 0));
  const int64_t end = std::max(begin, clip(call.integer("end", ndim)));
  const std::vector<int64_t> part(shape.begin() + begin, shape.begin() + end);
  return {host_ints(part, {end - begin})};
}

Values size_of(const Call& call) {
  int64_t count = 1;
  for (const int64_t extent : call.value(0).shape()) count *= extent;
  return {host_ints({count}, {})};
}

// ---- Constants ---------------------------------------------------------------------------------

HostTensor host_floats(const std::vector<double>& numbers, std::vector<int64_t> shape) {
  HostTensor result{BP_F32, std::move(shape), {}};
  result.bytes.resize(numbers.size() * sizeof(float));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = static_cast<float>(numbers[i]);
    std::memcpy(result.bytes.data() + i * sizeof(float), &number, sizeof(float));
  }
  return result;
}

Values constant(const Call& call) {
  if (call.has("value")) return {call.tensor("value")};
  if (call.has("value_int")) return {host_ints({call.integer("value_int", 0)}, {})};
  if (call.has("value_float")) return {host_floats({call.number("value_float", 0)}, {})};
  if (call.has("value_ints")) {
    const std::vector<int64_t> numbers = call.integers("value_ints", {});
    return {host_ints(numbers, {static_cast<int64_t>(numbers.size())})};
  }
  if (call.has("value_floats")) {
    const std::vector<double> numbers = call.numbers("value_floats", {});
    return {host_floats(numbers, {static_cast<int64_t>(numbers.size())})};
  }
  call.unsupported("the constant is a sparse tensor or a string, or has no value");
}

Values constant_of_shape(const Call& call) {
  const std::vector<int64_t> shape = call.ints(0);
  if (!call.has("value")) return {zeros(shape, BP_F32, call.device())};
  const Tensor value = to_device(call.tensor("value"), call.device());
  return {value.reshape({}).expand(shape).contiguous()};
}

// The number of elements follows from the limits; a range of floats is computed in f64.
Values range(const Call& call) {
  const bp_dtype dtype = call.value(0).dtype();
  const auto count_of = [&](double elements) {
    if (std::isnan(elements)) call.refuse("the step of the range is 0, or a limit is no number");
    if (elements > 0x1p53) call.refuse("the range has more than 2^53 elements");
    return std::max<int64_t>(static_cast<int64_t>(std::ceil(elements)), 0);
  };
  if (is_plain_float(dtype)) {
    const double start = call.number(0), step = call.number(2);
    const int64_t count = count_of((call.number(1) - start) / step);
    return {bp::arange({count}, dtype, call.device(), start, step)};
  }
  const int64_t start = call.integer(0), step = call.integer(2);
  if (step == 0) call.refuse("the step of the range is 0");
  const double length = static_cast<double>(call.integer(1)) - static_cast<double>(start);
  const int64_t count = count_of(length / static_cast<double>(step));
  return {converted(bp::arange({count}, BP_I64, call.device(), start, step), dtype)};
}

// stash_type is the dtype in which a range of f16 or bf16 is computed: f32 at least.
Values range_of_stash(const Call& call) {
  if (call.integer("stash_type", 1) != 1) call.unsupported("attribute 'stash_type' is not 1");
  return range(call);
}

Values eye_like(const Call& call) {
  const std::vector<int64_t> shape = call.value(0).shape();
  if (shape.size() != 2)
    call.refuse("input 0 has the shape " + bp::to_string(IntList(shape)) + "; allowed: two axes");
  const bp_dtype dtype = call.dtype("dtype", call.value(0).dtype());
  const Tensor columns = count_up(shape[1], call.device());
  const Tensor rows = count_up(shape[0], call.device()).unsqueeze(1);
  return {converted(eq(columns, rows + call.integer("k", 0)), dtype)};
}

// ---- Views -------------------------------------------------------------------------------------

Values reshape_to(const Call& call, std::vector<int64_t> shape) {
  const Tensor x = call.input(0);
  const bool keeps_zeros = call.flag("allowzero", false);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 0 || keeps_zeros) continue;
    if (static_cast<int64_t>(i) >= x.ndim()) {
      call.refuse("extent " + std::to_string(i) + " of the shape " + bp::to_string(IntList(shape)) +
                  " is 0, but input 0 has " + std::to_string(x.ndim()) + " axes");
    }
    shape[i] = x.shape(static_cast<int64_t>(i));
  }
  return {x.reshape(shape)};
}

Values reshape_attribute(const Call& call) { return reshape_to(call, call.integers("shape", {})); }

Values reshape_input(const Call& call) { return reshape_to(call, call.ints(1)); }

Values flatten(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t given = call.integer("axis", 1);
  const int64_t axis = given == x.ndim() ? given : call.axis(given, x.ndim());
  int64_t rows = 1, columns = 1;
  for (int64_t i = 0; i < x.ndim(); ++i) (i < axis ? rows : columns) *= x.shape(i);
  return {x.reshape({rows, columns})};
}

Values squeeze(const Call& call) {
  const Tensor x = call.input(0);
  if (!call.has("axes") && !call.has(1)) return {x.squeeze()};
  std::vector<int64_t> axes = call.axes(call.attribute_or_input("axes", 1, {}), x.ndim());
  std::ranges::sort(axes, std::greater<>());
  Tensor y = x;
  for (const int64_t axis : axes) {
    if (x.shape(axis) != 1) {
      call.refuse("axis " + std::to_string(axis) + " of " + bp::to_string(x.shape()) +
                  " is to go, but its extent is not 1");
    }
    y = y.squeeze(axis);
  }
  return {y};
}

Values unsqueeze(const Call& call) {
  Tensor y = call.input(0);
  std::vector<int64_t> axes = call.attribute_or_input("axes", 1, {});
  axes = call.axes(axes, y.ndim() + static_cast<int64_t>(axes.size()));
  std::ranges::sort(axes);
  for (const int64_t axis : axes) y = y.unsqueeze(axis);
  return {y};
}

// Both shapes broadcast to each other.
Values expand(const Call& call) {
  const Tensor x = call.input(0);
  std::vector<int64_t> shape = call.ints(1);
  const auto ndim = static_cast<size_t>(x.ndim());
  if (shape.size() < ndim) shape.insert(shape.begin(), ndim - shape.size(), 1);
  for (size_t i = 0; i < ndim; ++i) {
    int64_t& wanted = shape[shape.size() - ndim + i];
    if (wanted == 1) wanted = x.shape(static_cast<int64_t>(i));
  }
  return {x.expand(shape)};
}

constexpr const char* kConstant =
    "value value_float value_floats value_int value_ints value_string value_strings sparse_value";

constexpr OpRow kRows[] = {
    {"Constant", 1, constant, kConstant, OnnxRoute::kView},
    {"ConstantOfShape", 9, constant_of_shape, "value", OnnxRoute::kOp},
    {"Expand", 8, expand, "", OnnxRoute::kView},
    {"EyeLike", 9, eye_like, "dtype k"},
    {"Flatten", 1, flatten, "axis", OnnxRoute::kView},
    {"Range", 11, range, "", OnnxRoute::kOp},
    {"Range", 27, range_of_stash, "stash_type", OnnxRoute::kOp},
    {"Reshape", 1, reshape_attribute, "shape", OnnxRoute::kView},
    {"Reshape", 5, reshape_input, "allowzero", OnnxRoute::kView},
    {"Shape", 1, shape_of, "start end", OnnxRoute::kView},
    {"Size", 1, size_of, "", OnnxRoute::kView},
    {"Squeeze", 1, squeeze, "axes", OnnxRoute::kView},
    {"Unsqueeze", 1, unsqueeze, "axes", OnnxRoute::kView},
};

}  // namespace

std::span<const OpRow> shape_ops() { return kRows; }

}  // namespace bp::onnx
