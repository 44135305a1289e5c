// Cases of gelu and its gradient. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/activation.hpp"

namespace bp::conformance {
namespace {

using reference::Gelu;

// Returns shapes around vector widths, and of each rank.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {},      {1},  {3},  {4},    {7},    {8}, {9},       {16},         {17},
      {31},    {33}, {67}, {1031}, {5, 7}, {0}, {3, 0, 5}, {2, 3, 4, 5}, {2, 1, 2, 1, 2, 1, 2, 3},
      {1, 257}};
  return all;
}

Gelu form_of(const CallData& data) {
  const bool is_tanh = data.integer("approximation") == BP_GELU_APPROXIMATION_TANH;
  return is_tanh ? Gelu::kTanh : Gelu::kErf;
}

// ---- Forward --------------------------------------------------------------------------------- //

// x times what vanishes at -inf: NaN by the formula, and 0 as a limit.
void allow_limit(Expected& expected, const HostTensor& x) {
  expected.also_right = [data = x.data](int64_t element, DoubleDouble y) {
    return y.hi == 0 && data[static_cast<size_t>(element)].hi == -HUGE_VAL;
  };
}

std::vector<Expected> expected_gelu(const CallData& data, const Numerics& numerics) {
  const HostTensor& x = data.tensor("x");
  const Gelu form = form_of(data);
  const auto run = [&]<typename N>(N) {
    Array<N> y = data.array<N>("x");
    for (N& value : y.data) value = reference::gelu(value, form);
    return std::vector{y};
  };
  Known known = steps(x.dtype, run);
  known.formula = [&](BoundRule rule) {
    if (rule != BoundRule::kFunction || form == Gelu::kTanh) return Bounds();
    Bounds bounds(1);
    for (const DoubleDouble& value : x.data) {
      bounds[0].push_back(gelu_bound(x.dtype, value.hi, numerics));
    }
    return bounds;
  };
  std::vector<Expected> expected = judged(data, std::move(known));
  allow_limit(expected[0], x);
  return expected;
}

struct Activation {
  uint32_t op;
  int64_t approximation;
  Fill data;
  Reference reference;
};

// Returns data down to the arguments where gelu or its density underflows. The oracle needs the
// digits of the density.
Fill gelu_tail(bp_dtype dtype) {
  const double end = dtype == BP_F64 ? -37.6 : dtype == BP_F16 ? -6 : -14;
  return {FillKind::kUniform, end, 0};
}

const char* form_text(int64_t approximation) {
  return approximation == BP_GELU_APPROXIMATION_TANH ? "_tanh" : "_erf";
}

void add_forward(OpCases& cases, const Activation& op, bp_dtype dtype) {
  const auto add = [&](const std::string& fill, const Fill& data, const Shape& shape, Layout layout,
                       std::string_view alias = "") {
    const std::string lies = std::string(alias.empty() ? "" : "inplace_") + layout_text(layout);
    OpCase made =
        make_case(op.op, dtype, fill, shape_text(shape) + form_text(op.approximation), lies);
    made.input("x", dtype, shape, data, layout).output("y", dtype, shape, layout);
    made.tensors.back().alias = alias;
    made.set("approximation", op.approximation);
    made.reference = op.reference;
    made.is_smoke = is_smoke_dtype(dtype);
    made.varies = element_count(shape) > 64 && fill == "random";
    cases.push_back(std::move(made));
  };
  for (const Shape& shape : shapes()) add("random", op.data, shape, Layout::kDense);
  for (const Layout layout : {Layout::kDense, Layout::kSliced, Layout::kTransposed}) {
    add("random", op.data, {6, 11}, layout, "x");
  }
  const auto specials = static_cast<int64_t>(special_values(dtype).size());
  add("special", kSpecial, {2 * specials + 1}, Layout::kDense);
  add("special", kSpecial, {3, specials}, Layout::kSliced);
  const double low = dtype == BP_F16 ? -14 : -40, high = dtype == BP_F16 ? 15 : 20;
  add("range", {FillKind::kLogUniform, low, high}, {5, 257}, Layout::kDense);
  // The exponentials and the error function end here.
  const double end = dtype == BP_F64 ? 760 : 110;
  add("ends", {FillKind::kUniform, -end, end}, {1031}, Layout::kDense);
  if (op.op == BP_OP_GELU) add("tail", gelu_tail(dtype), {4099}, Layout::kDense);
}

// ---- Backward -------------------------------------------------------------------------------- //

// Runs `f` on each element of grad_y and of x.
template <typename F>
std::vector<Expected> gradient(const CallData& data, F f) {
  return judged_steps(data, data.tensor("grad_y").dtype, [&]<typename N>(N) {
    Array<N> grad = data.array<N>("grad_y");
    const Array<N> at = data.array<N>("x");
    for (int64_t i = 0; i < grad.size(); ++i) grad[i] = f(grad[i], at[i]);
    return std::vector{grad};
  });
}

// The gradient of gelu multiplies the density by x and grad_y. If the density is subnormal, its
// rounding is a subnormal, whatever the gradient is.
void allow_rounded_density(Expected& expected, const CallData& data) {
  const HostTensor &grad = data.tensor("grad_y"), &x = data.tensor("x");
  const double subnormal = float_format(x.dtype)->smallest_subnormal();
  for (size_t i = 0; i < expected.bound.size(); ++i) {
    const double factor = std::fabs(grad.data[i].hi * x.data[i].hi);
    if (std::isfinite(factor)) expected.bound[i] += factor * subnormal;
  }
}

std::vector<Expected> expected_gelu_backward(const CallData& data, const Numerics&) {
  const Gelu form = form_of(data);
  std::vector<Expected> expected =
      gradient(data, [form](auto grad, auto x) { return reference::gelu_backward(grad, x, form); });
  if (form == Gelu::kErf) allow_rounded_density(expected[0], data);
  allow_nan_at_infinity(expected[0], data.tensor("x"));
  return expected;
}

struct Gradient {
  uint32_t op;
  int64_t approximation;
  Fill data;  // The data of x.
  Reference reference;
};

void add_backward(OpCases& cases, const Gradient& op, bp_dtype dtype) {
  const auto add = [&](const std::string& fill, const Fill& grad, const Fill& at,
                       const Shape& shape, Layout layout, std::string_view alias = "") {
    const std::string lies = alias.empty()
                                 ? layout_text(layout)
                                 : "inplace_" + std::string(alias) + "_" + layout_text(layout);
    OpCase made =
        make_case(op.op, dtype, fill, shape_text(shape) + form_text(op.approximation), lies);
    made.input("grad_y", dtype, shape, grad, layout).input("x", dtype, shape, at, layout);
    made.output("grad_x", dtype, shape, layout).tensors.back().alias = alias;
    made.set("approximation", op.approximation);
    made.reference = op.reference;
    made.is_smoke = is_smoke_dtype(dtype);
    made.varies = element_count(shape) > 64 && fill == "random";
    cases.push_back(std::move(made));
  };
  for (const Shape& shape : shapes()) add("random", kRandom, op.data, shape, Layout::kDense);
  for (const std::string_view input : {std::string_view("grad_y"), std::string_view("x")}) {
    for (const Layout layout : {Layout::kDense, Layout::kSliced, Layout::kTransposed}) {
      add("random", kRandom, op.data, {6, 11}, layout, input);
    }
  }
  const auto specials = static_cast<int64_t>(special_values(dtype).size());
  add("special", kSpecial, kSpecialSlow, {specials, specials}, Layout::kDense);
  add("special", kSpecial, kSpecialSlow, {specials, specials}, Layout::kSliced);
  const double end = dtype == BP_F64 ? 760 : 110;
  add("ends", kRandom, {FillKind::kUniform, -end, end}, {1031}, Layout::kDense);
  if (op.op == BP_OP_GELU_BACKWARD) {
    add("tail", kPositive, gelu_tail(dtype), {4099}, Layout::kDense);
  }
}

}  // namespace

void add_activation(OpCases& cases) {
  const Fill moderate{FillKind::kUniform, -6, 6};
  const Activation activations[] = {
      {BP_OP_GELU, BP_GELU_APPROXIMATION_NONE, moderate, expected_gelu},
      {BP_OP_GELU, BP_GELU_APPROXIMATION_TANH, moderate, expected_gelu},
  };
  static_assert(int{BP_GELU_BACKWARD_APPROXIMATION_TANH} == int{BP_GELU_APPROXIMATION_TANH});
  const Gradient gradients[] = {
      {BP_OP_GELU_BACKWARD, BP_GELU_APPROXIMATION_NONE, moderate, expected_gelu_backward},
      {BP_OP_GELU_BACKWARD, BP_GELU_APPROXIMATION_TANH, moderate, expected_gelu_backward},
  };
  for (const bp_dtype dtype : kFloats) {
    for (const Activation& op : activations) add_forward(cases, op, dtype);
    for (const Gradient& op : gradients) add_backward(cases, op, dtype);
  }
}

}  // namespace bp::conformance
