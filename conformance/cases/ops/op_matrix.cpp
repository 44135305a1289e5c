// Cases of matmul and linear.
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

std::vector<Expected> expected_matmul(const CallData& data, const Numerics& numerics) {
  return with_float(data.tensor("y").dtype, [&]<typename N>(N) {
    const Array<N> a = data.array<N>("a"), b = data.array<N>("b");
    return judged_sum(data, reference::matmul(a, b), reference::matmul(absolute(a), absolute(b)),
                      static_cast<double>(a.shape.back()), numerics);
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

// `before` is the product with its bias. Its bound grows by the slope of the activation and by the
// error of the activation itself, if the class of the op gives it one.
Expected activated(const Expected& before, int64_t activation, bp_dtype dtype) {
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
      if (is_bounded) after.bound[i] = kGeluSlope * before.bound[i] + gelu_bound(dtype, x);
    } else {
      y = elementwise::silu(y);
      if (is_bounded) after.bound[i] = kSiluSlope * before.bound[i] + silu_bound(dtype, x, y.hi);
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
    const Array<N> y = reference::linear(x, weight, has_bias ? &bias : nullptr);
    const Array<N> magnitude =
        reference::linear(absolute(x), absolute(weight), has_bias ? &bias_magnitude : nullptr);
    Known known = summed(y, magnitude, static_cast<double>(x.shape.back() + has_bias), numerics);
    add_preactivation(data, known);
    std::vector<Expected> expected = judged(data, std::move(known));
    expected[0] = activated(expected[0], data.integer("activation"), dtype);
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

}  // namespace

void add_matrix(OpCases& cases) {
  const Size odd{17, 33, 19, {}}, wide{33, 64, 17, {}}, batched{5, 7, 3, {2}};
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
    add_linear(cases, dtype, true, is_smoke);
    add_linear(cases, dtype, false, is_smoke);
  }
}

}  // namespace bp::conformance
