// Cases of the element-wise ops of two tensors.
#include "conformance/cases/op_families.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/binary.hpp"

namespace bp::conformance {
namespace {

struct Row {
  Shape shape;
  Layout a = Layout::kDense;
  Layout b = Layout::kDense;
  Layout y = Layout::kDense;
};

const std::vector<Row>& layout_rows() {
  using enum Layout;
  static const std::vector<Row> rows = {
      {{5, 7}, kDense, kBroadcastFirst},
      {{5, 7}, kDense, kBroadcastLast},
      {{5, 7}, kDense, kBroadcastAll},
      {{5, 7}, kBroadcastFirst, kDense},
      {{5, 7}, kBroadcastLast, kBroadcastFirst},
      {{3, 4, 5}, kDense, kBroadcastFirst},
      {{3, 4, 5}, kBroadcastLast, kDense},
      {{5, 7}, kTransposed, kDense},
      {{5, 7}, kDense, kTransposed},
      {{5, 7}, kTransposed, kTransposed, kTransposed},
      {{3, 4, 5}, kPermuted, kTransposed},
      {{5, 7}, kSliced, kDense},
      {{5, 7}, kDense, kSliced, kSliced},
      {{19}, kStepped, kDense},
      {{19}, kDense, kStepped, kStepped},
      {{19}, kNegative, kDense},
      {{4, 9}, kDense, kNegative},
      {{19}, kOffset, kDense},
      {{19}, kDense, kOffset},
      {{5, 7}, kOffset, kOffset, kOffset},
      {{2, 3, 2, 3, 2}, kSliced, kTransposed, kPermuted},
  };
  return rows;
}

const std::vector<Shape>& dense_shapes() {
  static const std::vector<Shape> shapes = {
      {},   {1},   {3},    {8}, {9},    {16},         {17},
      {65}, {257}, {5, 7}, {0}, {4, 0}, {2, 3, 4, 5}, {2, 1, 2, 1, 2, 1, 2, 3}};
  return shapes;
}

std::string layouts_text(const Row& row) {
  std::string text = std::string(layout_text(row.a)) + "_" + layout_text(row.b);
  if (row.a == Layout::kDense && row.b == Layout::kDense) text = "dense";
  if (row.y != Layout::kDense) text += std::string("_to_") + layout_text(row.y);
  return text;
}

// b as the op sees it: an inline scalar is converted to the dtype of a.
template <typename N>
Array<N> second_operand(const CallData& data) {
  if (data.has("b")) return data.array<N>("b");
  Array<N> b(data.tensor("a").shape);
  std::byte bytes[8] = {};
  const bp_dtype dtype = data.tensor("a").dtype;
  store_element(dtype, data.value("b"), bytes);
  const DoubleDouble value = load_element(dtype, bytes);
  for (N& element : b.data) {
    if constexpr (std::is_same_v<N, Integer>) {
      element = Integer(to_int64(value));
    } else if constexpr (std::is_same_v<N, double>) {
      element = value.hi;
    } else {
      element = value;
    }
  }
  return b;
}

template <typename N, typename F>
Array<N> zipped(const CallData& data, F f) {
  Array<N> y = data.array<N>("a");
  const Array<N> b = second_operand<N>(data);
  for (int64_t i = 0; i < y.size(); ++i) y[i] = f(y[i], b[i]);
  return y;
}

// An oracle of class E0 or E1.
template <typename F>
std::vector<Expected> exact_op(const CallData& data, F f, bool checks_bias) {
  return with_number(data.tensor("a").dtype, [&]<typename N>(N) {
    Expected expected = exactly(zipped<N>(data, f));
    expected.sign_of_zero = true;
    expected.checks_bias = checks_bias;
    return std::vector{expected};
  });
}

std::vector<Expected> expected_add(const CallData& data, const Numerics&) {
  return exact_op(
      data, [](auto a, auto b) { return reference::add(a, b); }, true);
}
std::vector<Expected> expected_sub(const CallData& data, const Numerics&) {
  return exact_op(
      data, [](auto a, auto b) { return reference::sub(a, b); }, true);
}
std::vector<Expected> expected_mul(const CallData& data, const Numerics&) {
  return exact_op(
      data, [](auto a, auto b) { return reference::mul(a, b); }, true);
}
std::vector<Expected> expected_eq(const CallData& data, const Numerics&) {
  return exact_op(
      data, [](auto a, auto b) { return reference::eq(a, b); }, false);
}

std::vector<Expected> expected_lt(const CallData& data, const Numerics&) {
  return exact_op(
      data, [](auto a, auto b) { return reference::lt(a, b); }, false);
}

template <typename F>
std::vector<Expected> extreme_op(const CallData& data, F f) {
  std::vector<Expected> all = exact_op(data, f, false);
  // 0 and -0 are equally large.
  for (const DoubleDouble& value : all[0].value) {
    all[0].free_zero_sign.push_back(value.hi == 0);
  }
  return all;
}

std::vector<Expected> expected_maximum(const CallData& data, const Numerics&) {
  return extreme_op(data, [](auto a, auto b) { return reference::maximum(a, b); });
}
std::vector<Expected> expected_minimum(const CallData& data, const Numerics&) {
  return extreme_op(data, [](auto a, auto b) { return reference::minimum(a, b); });
}

std::vector<Expected> expected_div(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("a").dtype;
  return with_float(dtype, [&]<typename N>(N) {
    Expected expected = exactly(zipped<N>(data, [](N a, N b) { return reference::div(a, b); }));
    expected.sign_of_zero = true;
    for (const DoubleDouble& r : expected.value) {
      expected.bound.push_back(divide_bound(dtype, r.hi, numerics));
    }
    return std::vector{expected};
  });
}

struct BinaryOp {
  uint32_t op;
  bool has_integers;
  Reference reference;

  bool is_comparison() const { return op == BP_OP_EQ || op == BP_OP_LT; }
};

class Rows {
 public:
  Rows(OpCases& cases, const BinaryOp& op, bp_dtype dtype, bool is_smoke)
      : cases_(cases), op_(op), dtype_(dtype), is_smoke_(is_smoke) {}

  void add_all() {
    const bool is_eq = op_.is_comparison();
    const Fill data = is_eq ? kRepeat : is_float(dtype_) ? kRandom : kExactDense;
    const std::string fill = is_eq ? "repeat" : is_float(dtype_) ? "random" : "exact_dense";
    for (const Shape& shape : dense_shapes()) add(fill, data, data, {shape}, "dense");
    if (is_float(dtype_) && !is_eq) add(fill, data, data, {{1031}}, "dense");  // For the bias.
    for (const Row& row : layout_rows()) {
      // Coordinates name the element that was read instead of the right one.
      add(is_eq ? fill : "coord", is_eq ? data : kCoord, is_eq ? data : kExactDense, row,
          layouts_text(row));
    }
    const int64_t n = static_cast<int64_t>(special_values(dtype_).size());
    add("special", kSpecial, kSpecialSlow, {{n, n}}, "dense");
    add("special", kSpecial, kSpecialSlow, {{n, n}, Layout::kSliced, Layout::kDense},
        "sliced_dense");
    add_aliased(fill, data);
    add_scalar(fill, data);
  }

 private:
  OpCase& add(const std::string& fill, const Fill& a, const Fill& b, const Row& row,
              const std::string& layout) {
    OpCase made = make_case(op_.op, dtype_, fill, shape_text(row.shape), layout);
    made.input("a", dtype_, row.shape, a, row.a).input("b", dtype_, row.shape, b, row.b);
    made.output("y", op_.is_comparison() ? bp_dtype{BP_BOOL} : dtype_, row.shape, row.y);
    made.reference = op_.reference;
    made.is_smoke = is_smoke_;
    made.varies = element_count(row.shape) > 8 && !op_.is_comparison() &&
                  row.a != Layout::kBroadcastAll && row.b != Layout::kBroadcastAll &&
                  dtype_ != BP_BOOL;
    cases_.push_back(std::move(made));
    return cases_.back();
  }

  void add_aliased(const std::string& fill, const Fill& data) {
    OpCase& twice = add(fill, data, data, {{6, 11}}, "twice");
    twice.tensors[1].alias = "a";
    twice.varies = false;  // a - a and a == a are constant.
    twice.derive = [](CallData& call) { call.tensor("b").data = call.tensor("a").data; };
    if (op_.is_comparison()) return;
    for (const std::string_view input : {"a", "b"}) {
      for (const Layout layout : {Layout::kDense, Layout::kSliced}) {
        const Row row{{6, 11}, layout, layout, layout};
        add(fill, data, data, row, "inplace_" + std::string(input) + "_" + layout_text(layout))
            .tensors[2]
            .alias = input;
      }
    }
  }

  void add_scalar(const std::string& fill, const Fill& data) {
    for (const Layout layout : {Layout::kDense, Layout::kSliced}) {
      OpCase& made =
          add(fill, data, data, {{3, 11}, layout}, std::string("scalar_b_") + layout_text(layout));
      made.tensors.erase(made.tensors.begin() + 1);
      made.set("b", is_float(dtype_) ? float_scalar(op_.is_comparison() ? 1.0 : 0.1)
                                     : integer_scalar(dtype_ == BP_BOOL ? 1 : 3));
      if (dtype_ == BP_BOOL) made.attributes.back().value = bp_scalar{BP_BOOL, 0, 1};
    }
  }

  OpCases& cases_;
  const BinaryOp& op_;
  bp_dtype dtype_;
  bool is_smoke_;
};

}  // namespace

void add_binary(OpCases& cases) {
  const BinaryOp ops[] = {
      {BP_OP_ADD, true, expected_add},         {BP_OP_SUB, true, expected_sub},
      {BP_OP_MUL, true, expected_mul},         {BP_OP_DIV, false, expected_div},
      {BP_OP_MAXIMUM, true, expected_maximum}, {BP_OP_EQ, true, expected_eq},
      {BP_OP_MINIMUM, true, expected_minimum}, {BP_OP_LT, true, expected_lt},
  };
  for (const BinaryOp& op : ops) {
    for (const bp_dtype dtype : {BP_F32, BP_F64}) Rows(cases, op, dtype, true).add_all();
    for (const bp_dtype dtype : {BP_F16, BP_BF16}) Rows(cases, op, dtype, false).add_all();
    if (!op.has_integers) continue;
    for (const bp_dtype dtype : {BP_I32, BP_I64}) Rows(cases, op, dtype, true).add_all();
    if (!op.is_comparison()) continue;
    Rows(cases, op, BP_BOOL, true).add_all();
    for (const bp_dtype dtype : {BP_U8, BP_I8, BP_I16}) Rows(cases, op, dtype, false).add_all();
  }
}

}  // namespace bp::conformance
