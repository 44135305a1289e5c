// Cases of the element-wise ops of one tensor, and of relu's gradient.
#include "conformance/cases/op_families.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/unary.hpp"

namespace bp::conformance {
namespace {

// A tensor and how input and output lie.
struct Row {
  Shape shape;
  Layout x = Layout::kDense;
  Layout y = Layout::kDense;
};

// Around vector widths, each rank, each layout on either side.
const std::vector<Row>& layout_rows() {
  using enum Layout;
  static const std::vector<Row> rows = {
      {{5, 7}, kTransposed},
      {{3, 4, 5}, kPermuted},
      {{5, 7}, kSliced},
      {{17}, kStepped},
      {{3, 9}, kStepped},
      {{17}, kNegative},
      {{4, 9}, kNegative},
      {{17}, kOffset},
      {{5, 7}, kOffset},
      {{5, 7}, kBroadcastFirst},
      {{5, 7}, kBroadcastLast},
      {{5, 7}, kBroadcastAll},
      {{5, 7}, kDense, kSliced},
      {{5, 7}, kDense, kTransposed},
      {{17}, kDense, kStepped},
      {{17}, kDense, kNegative},
      {{17}, kDense, kOffset},
      {{5, 7}, kTransposed, kSliced},
      {{5, 7}, kTransposed, kTransposed},
      {{6, 5, 4}, kPermuted, kPermuted},
      {{2, 3, 2, 3, 2}, kTransposed, kSliced},
  };
  return rows;
}

const std::vector<Shape>& dense_shapes() {
  static const std::vector<Shape> shapes = {
      {},   {1},      {3},    {7},          {8},
      {9},  {15},     {16},   {17},         {33},
      {67}, {257},    {5, 7}, {2, 3, 4, 5}, {2, 1, 2, 1, 2, 1, 2, 3},
      {0},  {3, 0, 5}};
  return shapes;
}

std::string layouts_text(const Row& row) {
  if (row.y == Layout::kDense) return layout_text(row.x);
  return std::string(layout_text(row.x)) + "_to_" + layout_text(row.y);
}

struct UnaryOp {
  uint32_t op;
  Fill data;
  bool has_integers;
  Reference reference;
};

// The oracle `f` on each element of x; `bound` gives B from argument and result.
template <typename F, typename Bound>
Expected mapped(const CallData& data, F f, Bound bound) {
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    Array<N> y(x.shape);
    Expected expected;
    for (int64_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
    expected = exactly(y);
    for (int64_t i = 0; i < x.size(); ++i) {
      expected.bound.push_back(bound(exact_of(x[i]).hi, exact_of(y[i]).hi));
    }
    return expected;
  });
}

std::vector<Expected> expected_neg(const CallData& data, const Numerics&) {
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    Array<N> y = data.array<N>("x");
    for (N& value : y.data) value = reference::neg(value);
    Expected expected = exactly(y);
    expected.sign_of_zero = true;
    return std::vector{expected};
  });
}

std::vector<Expected> expected_abs(const CallData& data, const Numerics&) {
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    Array<N> y = data.array<N>("x");
    for (N& value : y.data) value = reference::absolute_value(value);
    Expected expected = exactly(y);
    expected.sign_of_zero = true;
    return std::vector{expected};
  });
}

std::vector<Expected> expected_exp(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("x").dtype;
  return {mapped(
      data, [](auto x) { return reference::exponential(x); },
      [&](double x, double r) { return exp_bound(dtype, x, r, numerics); })};
}

std::vector<Expected> expected_log(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("x").dtype;
  return {mapped(
      data, [](auto x) { return reference::logarithm(x); },
      [&](double x, double r) { return log_bound(dtype, x, r, numerics); })};
}

std::vector<Expected> expected_sqrt(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("x").dtype;
  Expected expected = mapped(
      data, [](auto x) { return reference::square_root(x); },
      [&](double, double r) { return sqrt_bound(dtype, r, numerics); });
  expected.sign_of_zero = true;
  return {expected};
}

std::vector<Expected> expected_relu(const CallData& data, const Numerics&) {
  Expected expected = mapped(
      data, [](auto x) { return reference::relu(x); }, [](double, double) { return 0.0; });
  expected.sign_of_zero = true;
  for (const DoubleDouble& x : data.tensor("x").data) {
    expected.free_zero_sign.push_back(x.hi == 0);  // 0 and -0 are equally large.
  }
  return {expected};
}

std::vector<Expected> expected_relu_backward(const CallData& data, const Numerics&) {
  return with_float(data.tensor("y").dtype, [&]<typename N>(N) {
    Array<N> grad = data.array<N>("grad_y");
    const Array<N> y = data.array<N>("y");
    for (int64_t i = 0; i < y.size(); ++i) grad[i] = reference::relu_backward(grad[i], y[i]);
    Expected expected = exactly(grad);
    expected.sign_of_zero = true;
    return std::vector{expected};
  });
}

void add_rows(OpCases& cases, const UnaryOp& op, bp_dtype dtype, bool is_smoke) {
  const auto add = [&](const std::string& fill, const Fill& data, const Row& row,
                       const std::string& layout, std::string_view alias = "") {
    OpCase made = make_case(op.op, dtype, fill, shape_text(row.shape), layout);
    made.input("x", dtype, row.shape, data, row.x).output("y", dtype, row.shape, row.y);
    made.tensors.back().alias = alias;
    made.reference = op.reference;
    made.is_smoke = is_smoke;
    // A third of the results of relu are zero, and more of those of special values.
    const int64_t fewest = op.op == BP_OP_RELU ? 64 : 8;
    made.varies = element_count(row.shape) > fewest && !is_broadcast(row.x) && fill != "special";
    cases.push_back(std::move(made));
  };
  const Fill data = is_float(dtype) ? op.data : kExactDense;
  const std::string fill = is_float(dtype) ? "random" : "exact_dense";
  for (const Shape& shape : dense_shapes()) add(fill, data, {shape}, "dense");
  for (const Row& row : layout_rows()) add(fill, data, row, layouts_text(row));
  for (const Layout layout : {Layout::kDense, Layout::kSliced, Layout::kTransposed}) {
    const Row row{{6, 11}, layout, layout};
    add(fill, data, row, std::string("inplace_") + layout_text(layout), "x");
  }
  // More elements than 16 bits count, in place of the 2^31 that would break an index of 32 bits.
  add("tail", data, {{65549}}, "dense");
  cases.back().is_smoke = false;
  const auto specials = static_cast<int64_t>(special_values(dtype).size());
  add("special", kSpecial, {{2 * specials + 1}}, "dense");
  add("special", kSpecial, {{3, specials}, Layout::kSliced}, "sliced");
}

void add_relu_backward(OpCases& cases, bp_dtype dtype, bool is_smoke) {
  const auto add = [&](const std::string& fill, const Fill& grad, const Fill& y, const Row& row,
                       const std::string& layout, std::string_view alias = "") {
    OpCase made = make_case(BP_OP_RELU_BACKWARD, dtype, fill, shape_text(row.shape), layout);
    made.input("grad_y", dtype, row.shape, grad, row.x).input("y", dtype, row.shape, y, row.y);
    made.output("grad_x", dtype, row.shape);
    made.tensors.back().alias = alias;
    made.reference = expected_relu_backward;
    made.is_smoke = is_smoke;
    made.varies = false;  // Half of the gradients are zero.
    cases.push_back(std::move(made));
  };
  for (const Shape& shape : dense_shapes()) add("random", kRandom, kRandom, {shape}, "dense");
  for (const Row& row : layout_rows()) {
    const std::string layout = layout_text(row.x) + std::string("_and_") + layout_text(row.y);
    add("coord", kCoord, kRandom, row, layout);
  }
  add("random", kRandom, kRandom, {{6, 11}}, "inplace_grad_y", "grad_y");
  add("random", kRandom, kRandom, {{6, 11}}, "inplace_y", "y");
  const auto specials = static_cast<int64_t>(special_values(dtype).size());
  add("special", kSpecial, kSpecialSlow, {{specials, specials}}, "dense");
}

}  // namespace

void add_unary(OpCases& cases) {
  const UnaryOp ops[] = {
      {BP_OP_NEG, kRandom, true, expected_neg},
      {BP_OP_ABS, kRandom, true, expected_abs},
      {BP_OP_EXP, {FillKind::kUniform, -20, 20}, false, expected_exp},
      {BP_OP_LOG, {FillKind::kUniform, 0.001, 100}, false, expected_log},
      {BP_OP_SQRT, {FillKind::kUniform, 0, 100}, false, expected_sqrt},
      {BP_OP_RELU, {FillKind::kUniform, -1, 2}, false, expected_relu},
  };
  for (const UnaryOp& op : ops) {
    for (const bp_dtype dtype : {BP_F32, BP_F64}) add_rows(cases, op, dtype, true);
    for (const bp_dtype dtype : {BP_F16, BP_BF16}) add_rows(cases, op, dtype, false);
    if (!op.has_integers) continue;
    for (const bp_dtype dtype : {BP_I32, BP_I64}) add_rows(cases, op, dtype, true);
  }
  for (const bp_dtype dtype : {BP_F32, BP_F64}) add_relu_backward(cases, dtype, true);
  for (const bp_dtype dtype : {BP_F16, BP_BF16}) add_relu_backward(cases, dtype, false);
}

}  // namespace bp::conformance
