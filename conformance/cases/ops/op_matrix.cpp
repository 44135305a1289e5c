// Cases of matmul and linear.
#include <cmath>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/activation.hpp"
#include "conformance/reference/elementwise.hpp"
#include "conformance/reference/matrix.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

struct Size {
  int64_t m, k, n;
  Shape batch;
};

// The layouts of the two factors and of the product.
struct Lies {
  Layout a = kDense, b = kDense, y = kDense;
};

// Returns extents below, at and above tiles of 4, 8, 16 and 32, with rows of a that are longer and
// shorter than those of b.
const std::vector<Size>& sizes() {
  static const std::vector<Size> all = {
      {1, 1, 1, {}},    {1, 17, 1, {}},     {5, 7, 3, {}},    {4, 4, 4, {}},
      {8, 8, 8, {}},    {16, 16, 16, {}},   {17, 16, 16, {}}, {16, 17, 16, {}},
      {16, 16, 17, {}}, {17, 33, 19, {}},   {48, 48, 17, {}}, {48, 17, 48, {}},
      {33, 64, 17, {}}, {31, 65, 9, {}},    {1, 129, 33, {}}, {33, 129, 1, {}},
      {20, 19, 35, {}}, {0, 5, 4, {}},      {4, 0, 5, {}},    {4, 5, 0, {}},
      {5, 7, 3, {2}},   {9, 4, 17, {2, 3}}, {5, 7, 3, {0}},   {5, 7, 3, {1, 2, 1, 3, 1, 2}},
  };
  return all;
}

const std::vector<Lies>& layouts() {
  static const std::vector<Lies> all = {
      {kTransposed},
      {kDense, kTransposed},
      {kTransposed, kTransposed},
      {kDense, kDense, kTransposed},
      {kSliced},
      {kDense, kSliced},
      {kSliced, kSliced, kSliced},
      {kStepped, kDense},
      {kDense, kStepped, kStepped},
      {kNegative, kNegative},
      {kOffset, kOffset, kOffset},
      {kBroadcastFirst, kDense},
      {kDense, kBroadcastLast},
      {kTransposed, kSliced, kOffset},
  };
  return all;
}

std::string layout_of(const Lies& lies) {
  if (lies.a == kDense && lies.b == kDense && lies.y == kDense) return "dense";
  std::string text;
  for (const auto& [layout, name] :
       {std::pair{lies.a, "a"}, std::pair{lies.b, "b"}, std::pair{lies.y, "y"}}) {
    if (layout == kDense) continue;
    text += (text.empty() ? "" : "_") + std::string(layout_text(layout)) + "_" + name;
  }
  return text;
}

std::string detail_of(const Size& size) {
  std::string text =
      "m" + std::to_string(size.m) + "k" + std::to_string(size.k) + "n" + std::to_string(size.n);
  return size.batch.empty() ? text : text + "_batch" + shape_text(size.batch);
}

Shape matrix(const Size& size, int64_t rows, int64_t columns) {
  Shape shape = size.batch;
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

using reference::Scales;

// Cases without an addend and scales need not give these.
Scales scales_of(const CallData& data) {
  return {data.has_attribute("alpha") ? data.number("alpha") : 0,
          data.has_attribute("beta") ? data.number("beta") : 0};
}

bool is_scaled(const CallData& data) { return data.has("addend") || scales_of(data).are_given(); }

// Returns the number of roundings of a sum of `depth` terms. A scaled sum has five more: alpha,
// beta, a product with each, and the sum of both.
double terms_of(int64_t depth, const CallData& data) {
  return static_cast<double>(depth + (is_scaled(data) ? 5 : 0));
}

template <typename N>
Array<N> with_addend(const CallData& data, Array<N> product, Scales scales, bool is_magnitude) {
  if (!data.has("addend")) return reference::scaled_sum<N>(std::move(product), nullptr, scales);
  Array<N> addend = data.array<N>("addend");
  if (is_magnitude) addend = absolute(std::move(addend));
  return reference::scaled_sum<N>(std::move(product), &addend, scales);
}

std::vector<Expected> expected_matmul(const CallData& data, const Numerics& numerics) {
  return with_float(data.tensor("y").dtype, [&]<typename N>(N) {
    const Array<N> a = data.array<N>("a"), b = data.array<N>("b");
    const Scales scales = scales_of(data);
    const Array<N> y = with_addend(data, reference::matmul(a, b), scales, false);
    const Array<N> magnitude =
        with_addend(data, reference::matmul(absolute(a), absolute(b)), scales.absolute(), true);
    Known known = summed(y, magnitude, terms_of(a.shape.back(), data), numerics);
    known.is_one_sided = is_scaled(data);  // An alpha that was rounded shifts all results alike.
    return judged(data, std::move(known));
  });
}

void add_matmul(OpCases& cases, bp_dtype dtype, const std::string& fill, const Size& size,
                const Lies& lies, bool is_smoke) {
  Fill a = kRandom, b = kRandom;
  if (fill == "exact_dense") a = kExactDense, b = kExactNarrow;
  if (fill == "onehot") a = kOneHot, b = kCoord;
  OpCase made = make_case(BP_OP_MATMUL, dtype, fill, detail_of(size), layout_of(lies));
  made.input("a", dtype, matrix(size, size.m, size.k), a, lies.a);
  made.input("b", dtype, matrix(size, size.k, size.n), b, lies.b);
  made.output("y", dtype, matrix(size, size.m, size.n), lies.y).reference = expected_matmul;
  made.is_smoke = is_smoke;
  made.is_exact = fill != "random";
  made.varies = size.m * size.n > 8 && size.k > 0 && lies.a == kDense && lies.b == kDense;
  cases.push_back(std::move(made));
}

// Partial sums overflow f16, and even the products do. The second half of the terms takes the first
// half away.
void overflow_on_the_way(CallData& data) {
  HostTensor &a = data.tensor("a"), &b = data.tensor("b");
  const int64_t k = a.shape[1], columns = b.shape[1];
  const auto term = [k](int64_t i) { return 200 + static_cast<double>(i % (k / 2)); };
  for (int64_t i = 0; i < static_cast<int64_t>(a.data.size()); ++i) {
    const int64_t at = i % k;
    a.data[static_cast<size_t>(i)] = at < k / 2 ? 300 : at < k / 2 * 2 ? -300 : 1;
  }
  for (int64_t i = 0; i < static_cast<int64_t>(b.data.size()); ++i) {
    b.data[static_cast<size_t>(i)] = term(i / columns);
  }
}

void add_overflowing(OpCases& cases, bp_dtype dtype) {
  for (const Size& size : {Size{5, 65, 7, {}}, Size{1, 257, 3, {}}}) {
    add_matmul(cases, dtype, "random", size, {}, is_smoke_dtype(dtype));
    cases.back().fill = "overflows";
    cases.back().derive = overflow_on_the_way;
    cases.back().varies = false;
  }
}

std::vector<Expected> expected_integers(const CallData& data, const Numerics&) {
  Array<Integer> y = reference::matmul(data.array<Integer>("a"), data.array<Integer>("b"));
  if (data.has("addend")) {
    const Array<Integer> addend = data.array<Integer>("addend");
    for (int64_t i = 0; i < y.size(); ++i) y[i] = y[i] + addend[i];
  }
  return judged_values(data, {exactly(y)});
}

// A product of integers wraps in the dtype of its result. Its data are large enough to wrap in 16
// bits, and kernels may leave it to the host.
void add_integers(OpCases& cases, bp_dtype dtype, bp_dtype result, const Size& size,
                  const Lies& lies) {
  const double least = dtype == BP_U8 ? 0 : -120;
  const Fill data{FillKind::kIndex, least, 121};
  const std::string detail = detail_of(size) + "_" + dtype_text(result);
  OpCase made = make_case(BP_OP_MATMUL, dtype, "integers", detail, layout_of(lies));
  made.input("a", dtype, matrix(size, size.m, size.k), data, lies.a);
  made.input("b", dtype, matrix(size, size.k, size.n), data, lies.b);
  made.output("y", result, matrix(size, size.m, size.n), lies.y).reference = expected_integers;
  made.is_smoke = result == BP_I32;
  made.is_exact = true;
  made.varies = false;
  made.optional_part = "integers";
  cases.push_back(std::move(made));
}

// Products, and sums of them, wrap in the widest dtypes too.
void add_wrapping_integers(OpCases& cases, bp_dtype dtype, const Size& size) {
  const double end = dtype == BP_I64 ? 0x1p62 : 0x1p30;
  add_integers(cases, dtype, dtype, size, {});
  OpCase& made = cases.back();
  made.fill = "wraps";
  for (TensorArgument& tensor : made.tensors) tensor.fill = {FillKind::kIndex, -end, end};
}

// Integers are added to the product, and nothing is scaled.
void add_integer_addend(OpCases& cases, bp_dtype dtype, const Size& size) {
  add_integers(cases, dtype, dtype, size, {});
  OpCase& made = cases.back();
  made.detail += "_addend";
  made.input("addend", dtype, matrix(size, size.m, size.n), {FillKind::kIndex, 0, 100});
  made.set("alpha", 0.0).set("beta", 0.0);
}

// A sum of a product and an addend, which may be broadcast.
struct ScaledRow {
  bool has_addend;
  Scales scales;
  Layout addend = kDense;
};

const std::vector<ScaledRow>& scaled_rows() {
  static const std::vector<ScaledRow> rows = {
      {true, {}},
      {true, {0.5, -2}},
      {true, {1.7, 0.3}, kBroadcastFirst},
      {true, {1, 1}, kBroadcastLast},
      {true, {0, -0.6}, kBroadcastAll},
      {false, {-1.3, 0}},
      {false, {1, 0}},
  };
  return rows;
}

std::string scaled_text(const ScaledRow& row) {
  std::string text = row.has_addend ? "_addend" : "";
  if (row.scales.alpha != 0) text += "_alpha" + std::to_string(row.scales.alpha);
  if (row.scales.beta != 0) text += "_beta" + std::to_string(row.scales.beta);
  return text;
}

// Makes a scaled sum of a plain case whose y has this shape.
void scale(OpCase& made, const ScaledRow& row, bp_dtype dtype, const Shape& y) {
  made.detail += scaled_text(row);
  if (row.addend != kDense) made.layout += std::string("_") + layout_text(row.addend) + "_addend";
  if (row.has_addend) made.input("addend", dtype, y, kRandom, row.addend);
  made.set("alpha", row.scales.alpha).set("beta", row.scales.beta);
  made.optional_part = "addend and alpha";
}

void add_scaled_matmul(OpCases& cases, bp_dtype dtype) {
  for (const Size& size : {Size{17, 33, 19, {}}, Size{5, 7, 3, {2}}, Size{4, 0, 5, {}}}) {
    for (const ScaledRow& row : scaled_rows()) {
      add_matmul(cases, dtype, "random", size, {}, false);
      scale(cases.back(), row, dtype, matrix(size, size.m, size.n));
    }
  }
}

// ---- linear ---------------------------------------------------------------------------------- //

// The steepest slopes of gelu and silu.
constexpr double kGeluSlope = 1.13, kSiluSlope = 1.1;

// Before the activation both outputs are the product.
void add_preactivation(const CallData& data, Known& known) {
  if (!data.has("preactivation")) return;
  known.outputs.push_back(known.outputs[0]);
  known.sums = [of_product = known.sums] {
    Sums sums = of_product();
    sums.bounds.push_back(sums.bounds[0]);
    sums.magnitudes.push_back(sums.magnitudes[0]);
    return sums;
  };
}

// Returns the bound of silu alone, as the op silu has it.
double silu_bound(bp_dtype dtype, double x) {
  const double propagated = with_bounded(
      dtype, [&](auto number) { return elementwise::silu(decltype(number)(x)).error; });
  return propagated + float_format(dtype)->smallest_normal();
}

// `before` is the product with its bias. Its bound grows by the slope of the activation and by the
// error of the activation itself, if the class of the op gives it one.
Expected activated(const Expected& before, int64_t activation, bp_dtype dtype,
                   const Numerics& numerics) {
  if (activation == BP_LINEAR_ACTIVATION_NONE) return before;
  Expected after = before;
  after.checks_bias = false;
  if (activation != BP_LINEAR_ACTIVATION_RELU) {
    // At -inf, gelu and silu are NaN by their formulas, and 0 as a limit; both are right.
    after.also_right = [products = before.value](int64_t element, DoubleDouble y) {
      return y.hi == 0 && products[static_cast<size_t>(element)].hi == -HUGE_VAL;
    };
  }
  const bool is_bounded = !before.bound.empty();
  for (size_t i = 0; i < before.value.size(); ++i) {
    DoubleDouble& y = after.value[i];
    const double x = before.value[i].hi;
    if (activation == BP_LINEAR_ACTIVATION_RELU) {
      y = elementwise::relu(y);
    } else if (activation == BP_LINEAR_ACTIVATION_GELU) {
      y = reference::gelu(y, reference::Gelu::kErf);
      if (is_bounded)
        after.bound[i] = kGeluSlope * before.bound[i] + gelu_bound(dtype, x, numerics);
    } else {
      y = elementwise::silu(y);
      if (is_bounded) after.bound[i] = kSiluSlope * before.bound[i] + silu_bound(dtype, x);
    }
  }
  return after;
}

std::vector<Expected> expected_linear(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("y").dtype;
  return with_float(dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x"), weight = data.array<N>("weight");
    Array<N> bias, bias_magnitude;
    if (data.has("bias")) bias = data.array<N>("bias"), bias_magnitude = absolute(bias);
    const bool has_bias = data.has("bias");
    // linear() applies alpha, because it does not scale the bias.
    const Scales scales = scales_of(data), only_beta{0, scales.beta};
    const Array<N> y =
        with_addend(data, reference::linear(x, weight, has_bias ? &bias : nullptr, scales.alpha),
                    only_beta, false);
    const Array<N> magnitude = with_addend(
        data,
        reference::linear(absolute(x), absolute(weight), has_bias ? &bias_magnitude : nullptr,
                          std::fabs(scales.alpha)),
        only_beta.absolute(), true);
    Known known = summed(y, magnitude, terms_of(x.shape.back() + has_bias, data), numerics);
    known.is_one_sided = is_scaled(data);
    add_preactivation(data, known);
    std::vector<Expected> expected = judged(data, std::move(known));
    expected[0] = activated(expected[0], data.integer("activation"), dtype, numerics);
    return expected;
  });
}

struct LinearRow {
  Shape x;
  int64_t n;
  bool has_bias;
  int64_t activation;
  Lies lies;
  Layout bias = kDense;
  bool has_preactivation = false;
};

constexpr int64_t kNone = BP_LINEAR_ACTIVATION_NONE, kRelu = BP_LINEAR_ACTIVATION_RELU,
                  kGelu = BP_LINEAR_ACTIVATION_GELU, kSilu = BP_LINEAR_ACTIVATION_SILU;

const char* activation_text(int64_t activation) {
  if (activation == kNone) return "";
  return activation == kRelu ? "_relu" : activation == kGelu ? "_gelu" : "_silu";
}

const std::vector<LinearRow>& linear_rows() {
  static const std::vector<LinearRow> rows = {
      {{7}, 5, true, kNone, {}},
      {{5, 7}, 3, true, kNone, {}},
      {{5, 7}, 3, false, kNone, {}},
      {{5, 7}, 3, true, kRelu, {}},
      {{17, 33}, 19, true, kNone, {}},
      {{33, 17}, 48, true, kRelu, {}},
      {{2, 3, 16}, 17, true, kNone, {}},
      {{2, 3, 4, 9}, 5, false, kRelu, {}},
      {{2, 1, 2, 1, 2, 1, 3, 9}, 5, true, kRelu, {kOffset, kOffset, kOffset}, kOffset},
      {{48, 17}, 10, true, kNone, {}},
      {{0, 7}, 3, true, kNone, {}},
      {{5, 0}, 3, true, kNone, {}},
      {{5, 7}, 0, true, kNone, {}},
      {{17, 33}, 19, true, kNone, {kTransposed, kDense, kDense}},
      {{17, 33}, 19, true, kNone, {kDense, kTransposed, kDense}},
      {{17, 33}, 19, true, kNone, {kSliced, kDense, kSliced}},
      {{17, 33}, 19, true, kRelu, {kOffset, kOffset, kOffset}, kOffset},
      {{17, 33}, 19, true, kNone, {kStepped, kDense, kDense}, kStepped},
      {{17, 33}, 19, true, kNone, {kDense, kDense, kDense}, kBroadcastAll},
      {{17, 33}, 19, false, kNone, {kBroadcastFirst, kDense, kDense}},
      {{5, 7}, 3, true, kGelu, {}},
      {{5, 7}, 3, true, kSilu, {}},
      {{17, 33}, 19, false, kGelu, {}, kDense, true},
      {{17, 33}, 19, true, kGelu, {}, kDense, true},
      {{2, 3, 16}, 17, true, kSilu, {}, kDense, true},
      {{33, 17}, 48, false, kSilu, {}},
      {{5, 7}, 3, true, kNone, {}, kDense, true},
      {{17, 33}, 19, true, kRelu, {}, kDense, true},
      {{9}, 5, true, kGelu, {}, kDense, true},
      {{5, 0}, 3, true, kGelu, {}, kDense, true},
      {{0, 7}, 3, true, kSilu, {}, kDense, true},
      {{5, 7}, 0, true, kGelu, {}, kDense, true},
      {{17, 33}, 19, true, kGelu, {kTransposed, kDense, kSliced}, kDense, true},
      {{17, 33}, 19, true, kSilu, {kSliced, kTransposed, kTransposed}, kStepped, true},
  };
  return rows;
}

void add_linear(OpCases& cases, bp_dtype dtype, bool is_exact, bool is_smoke) {
  for (const LinearRow& row : linear_rows()) {
    if (is_exact && (row.activation == kGelu || row.activation == kSilu)) continue;
    const int64_t k = row.x.back();
    std::string detail = shape_text(row.x) + "_n" + std::to_string(row.n);
    detail += std::string(row.has_bias ? "_bias" : "") + activation_text(row.activation);
    if (row.has_preactivation) detail += "_saves";
    std::string layout = layout_of(row.lies);
    if (row.bias != kDense) layout += std::string("_") + layout_text(row.bias) + "_bias";
    OpCase made =
        make_case(BP_OP_LINEAR, dtype, is_exact ? "exact_dense" : "random", detail, layout);
    made.input("x", dtype, row.x, is_exact ? kExactDense : kRandom, row.lies.a);
    made.input("weight", dtype, {row.n, k}, is_exact ? kExactNarrow : kRandom, row.lies.b);
    if (row.has_bias) {
      made.input("bias", dtype, {row.n}, is_exact ? kExactDense : kRandom, row.bias);
    }
    Shape y(row.x.begin(), row.x.end() - 1);
    y.push_back(row.n);
    made.output("y", dtype, y, row.lies.y).reference = expected_linear;
    if (row.has_preactivation) made.output("preactivation", dtype, y, row.lies.y);
    made.set("activation", row.activation);
    made.is_exact = is_exact;
    made.is_smoke = is_smoke;
    made.varies = false;  // Half of the outputs of relu are zero.
    cases.push_back(std::move(made));
  }
}

void add_scaled_linear(OpCases& cases, bp_dtype dtype) {
  for (const ScaledRow& row : scaled_rows()) {
    for (const bool has_bias : {true, false}) {
      OpCase made = make_case(BP_OP_LINEAR, dtype, "random",
                              std::string("17x33_n19") + (has_bias ? "_bias" : ""), "dense");
      made.input("x", dtype, {17, 33}, kRandom).input("weight", dtype, {19, 33}, kRandom);
      if (has_bias) made.input("bias", dtype, {19}, kRandom);
      made.output("y", dtype, {17, 19}).reference = expected_linear;
      made.set("activation", kNone).varies = false;
      scale(made, row, dtype, {17, 19});
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace

void add_matrix(OpCases& cases) {
  const Size odd{17, 33, 19, {}}, wide{33, 64, 17, {}}, batched{5, 7, 3, {2}};
  for (const bp_dtype dtype : {BP_I32, BP_I64, BP_U8, BP_I8, BP_I16}) {
    for (const Size& size : sizes()) add_integers(cases, dtype, BP_I32, size, {});
    for (const bp_dtype result : {BP_I32, BP_I64, BP_U8, BP_I8, BP_I16}) {
      if (result != BP_I32) add_integers(cases, dtype, result, batched, {});
    }
    for (const Lies& lies : layouts()) add_integers(cases, dtype, dtype, wide, lies);
    add_integer_addend(cases, dtype, odd);
    if (dtype == BP_I32 || dtype == BP_I64) add_wrapping_integers(cases, dtype, odd);
  }
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
    const bool is_smoke = dtype == BP_F32 || dtype == BP_F64;
    for (const Size& size : sizes()) {
      for (const char* fill : {"exact_dense", "onehot", "random"}) {
        if (std::string_view(fill) == "onehot" && size.k == 0) continue;
        add_matmul(cases, dtype, fill, size, {}, is_smoke);
      }
    }
    for (const Lies& lies : layouts()) {
      add_matmul(cases, dtype, "onehot", odd, lies, is_smoke);
      add_matmul(cases, dtype, "exact_dense", wide, lies, is_smoke);
      add_matmul(cases, dtype, "random", batched, lies, is_smoke);
    }
    add_overflowing(cases, dtype);
    add_scaled_matmul(cases, dtype);
    add_scaled_linear(cases, dtype);
    add_linear(cases, dtype, true, is_smoke);
    add_linear(cases, dtype, false, is_smoke);
  }
}

}  // namespace bp::conformance
