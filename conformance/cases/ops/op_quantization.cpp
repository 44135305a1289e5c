// Cases of quantize, dequantize and matmul_scaled. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/narrow_format.hpp"
#include "conformance/reference/matrix.hpp"
#include "conformance/reference/quantization.hpp"

namespace bp::conformance {
namespace {

using reference::Blocked;

struct Row {
  Shape x, scale;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{17}, {1}},  // One scale for all elements; the last byte is not full.
      {{64}, {2}},  // Groups of 32.
      {{5, 7}, {1, 1}},
      {{5, 7}, {5, 1}},    // Rows that do not begin at a whole byte.
      {{5, 7}, {1, 7}},    // Columns.
      {{4, 96}, {4, 3}},   // Groups of 32 in a row.
      {{6, 64}, {3, 4}},   // Blocks of 2 by 16.
      {{9, 33}, {9, 11}},  // Groups that do not begin at a whole byte.
      {{2, 3, 32}, {2, 1, 1}},
      {{2, 1, 2, 1, 2, 1, 2, 6}, {2, 1, 1, 1, 2, 1, 1, 2}},
      {{0, 4}, {1, 1}},
      {{3, 0}, {3, 0}},
  };
  return rows;
}

// A scheme: what is stored, the dtype of its scales, whether it has zero points, and whether one
// scale multiplies all others.
struct Scheme {
  bp_dtype code, scale = 0;
  bool has_zero = false;
  bool has_tensor_scale = false;
};

constexpr Scheme kSchemes[] = {
    {BP_I8, BP_F32, false},
    {BP_U8, BP_F32, true},
    {BP_I8, BP_F16, true},
    {BP_I4, BP_F32, true},
    {BP_U4, BP_BF16, true},
    {BP_I2, BP_F32, false},
    {BP_U2, BP_F16, true},
    {BP_F8E4M3FN, BP_F32, false},
    {BP_F8E5M2, BP_F32, false},
    {BP_F8E4M3FN, BP_F8E8M0FNU, false},  // mxfp8
    {BP_F6E2M3, BP_F8E8M0FNU, false},    // mxfp6
    {BP_F6E3M2, BP_F8E8M0FNU, false},
    {BP_F4E2M1, BP_F8E8M0FNU, false},  // mxfp6, mxfp4
    {BP_F4E2M1, BP_F8E4M3FN, false},   // nvfp4, without and with its second scale
    {BP_F4E2M1, BP_F8E4M3FN, false, true},
    {BP_I8, BP_F16, true, true},
};

std::string scheme_text(const Scheme& scheme) {
  return std::string(dtype_text(scheme.scale)) + (scheme.has_tensor_scale ? "_scaled" : "") +
         (scheme.has_zero ? "_zero_" : "_");
}

// One third is not a power of two, so that its product with a scale is rounded.
constexpr Fill kTensorScale = {FillKind::kUniform, 1.0 / 3, 1.0 / 3};

std::string detail_of(const Row& row, const Scheme& scheme, bp_dtype number) {
  return shape_text(row.x) + "_by_" + shape_text(row.scale) + "_" + scheme_text(scheme) +
         dtype_text(number);
}

// Returns scales with which uniform numbers in [-8, 8) reach beyond the dtype now and then.
Fill scale_fill(const Scheme& scheme) {
  if (scheme.scale == BP_F8E8M0FNU) return {FillKind::kLogUniform, -4, 2};
  const double largest = narrow_format(scheme.code) != nullptr
                             ? narrow_values(scheme.code)[narrow_code(scheme.code, HUGE_VAL)]
                             : reference::largest_integer(scheme.code);
  return {FillKind::kUniform, 4 / largest, 16 / largest};
}

Fill zero_fill(bp_dtype code) {
  const double end = reference::largest_integer(code) + 1;
  return {FillKind::kUniform, std::max(reference::least_integer(code), -8.0), std::min(end, 8.0)};
}

Blocked blocked(const CallData& data) {
  Blocked of{data.array<double>("x"), data.array<double>("scale"), {}};
  if (data.has("zero")) of.zero = data.array<double>("zero");
  if (data.has("tensor_scale")) of.tensor_scale = data.array<double>("tensor_scale")[0];
  return of;
}

std::vector<Expected> expected_quantize(const CallData& data, const Numerics&) {
  return judged_values(data, {exactly(reference::quantize(blocked(data), data.tensor("y").dtype))});
}

std::vector<Expected> expected_dequantize(const CallData& data, const Numerics&) {
  return judged_values(data,
                       {exactly(reference::dequantize(blocked(data), data.tensor("y").dtype))});
}

struct Fills {
  Fill x, scale;
};

// Rows are named by the dtype of the codes.
OpCase make_row(uint32_t op, const Row& row, const Scheme& scheme, bp_dtype number,
                const std::string& fill, const Fills& fills) {
  OpCase made = make_case(op, scheme.code, fill, detail_of(row, scheme, number), "dense");
  const bool is_quantize = op == BP_OP_QUANTIZE;
  made.input("x", is_quantize ? number : scheme.code, row.x, fills.x);
  made.input("scale", scheme.scale, row.scale, fills.scale);
  if (scheme.has_zero) made.input("zero", scheme.code, row.scale, zero_fill(scheme.code));
  made.output("y", is_quantize ? scheme.code : number, row.x);
  if (scheme.has_tensor_scale) made.input("tensor_scale", BP_F32, {}, kTensorScale);
  made.reference = is_quantize ? expected_quantize : expected_dequantize;
  made.is_smoke = number == BP_F32;
  made.varies = false;  // Few codes may be mostly zero.
  return made;
}

void add_scheme(OpCases& cases, const Scheme& scheme, bp_dtype number) {
  const Fill wide{FillKind::kUniform, -8, 8}, two{FillKind::kUniform, 2, 2};
  const Fill one{FillKind::kUniform, 1, 1}, scales = scale_fill(scheme);
  for (const Row& row : all_rows()) {
    cases.push_back(make_row(BP_OP_QUANTIZE, row, scheme, number, "random", {wide, scales}));
    cases.push_back(
        make_row(BP_OP_DEQUANTIZE, row, scheme, number, "all_bits", {kAllBits, scales}));
  }
  // Quotients that lie in the middle between two integers, and special numbers.
  const Fill halves{FillKind::kExactDense, 1, 15};
  cases.push_back(
      make_row(BP_OP_QUANTIZE, {{4, 96}, {4, 3}}, scheme, number, "ties", {halves, two}));
  const auto specials = static_cast<int64_t>(special_values(number).size());
  cases.push_back(
      make_row(BP_OP_QUANTIZE, {{specials}, {1}}, scheme, number, "special", {kSpecial, one}));
  if (scheme.scale != BP_F8E8M0FNU) return;
  // Every scale of the format, NaN included.
  cases.push_back(make_row(BP_OP_DEQUANTIZE, {{512}, {256}}, scheme, number, "all_scales",
                           {kAllBits, kAllBits}));
}

// ---- matmul_scaled --------------------------------------------------------------------------- //

struct Product {
  Shape a;
  int64_t n;
  Shape a_scale, b_scale;
};

const std::vector<Product>& all_products() {
  static const std::vector<Product> products = {
      {{1, 64}, 5, {1, 1}, {5, 1}},
      {{7, 64}, 9, {7, 1}, {9, 2}},
      {{17, 96}, 33, {1, 1}, {33, 3}},
      {{4, 33}, 6, {1, 1}, {1, 11}},
      {{32}, 4, {1}, {4, 1}},
      {{2, 3, 64}, 8, {2, 3, 1}, {2, 2}},
      {{0, 32}, 4, {1, 1}, {4, 1}},
      {{3, 0}, 4, {1, 1}, {4, 1}},
      // Groups of 32, 64 and 128 in rows that end within a vector, and long rows.
      {{9, 320}, 18, {9, 1}, {18, 10}},
      {{5, 448}, 7, {1, 1}, {7, 7}},
      {{1, 896}, 19, {1, 1}, {19, 7}},
      // Groups of 16 in both factors.
      {{3, 160}, 18, {3, 10}, {18, 10}},
      {{13, 1000}, 17, {13, 1}, {17, 1}},
  };
  return products;
}

Blocked factor(const CallData& data, const char* name) {
  const std::string scale = std::string(name) + "_scale", zero = std::string(name) + "_zero";
  Blocked of{data.array<double>(name), {}, {}};
  if (data.has(scale)) {
    of.scale = data.array<double>(scale);
  } else {  // Floats, which stand for themselves.
    of.scale = Array<double>(Shape(of.x.shape.size(), 1));
    of.scale.data = {1.0};
  }
  if (data.has(zero)) of.zero = data.array<double>(zero);
  const std::string tensor_scale = std::string(name) + "_tensor_scale";
  if (data.has(tensor_scale)) of.tensor_scale = data.array<double>(tensor_scale)[0];
  return of;
}

// A factor is rounded up to twice before it is multiplied, or a product with its scales behind. A
// second scale rounds once more.
std::vector<Expected> expected_product(const CallData& data, const Numerics& numerics) {
  const Array<double> a = reference::numbers_of(factor(data, "a"));
  const Array<double> b = reference::numbers_of(factor(data, "b"));
  const Array<double> y = reference::linear<double>(a, b, nullptr);
  const Array<double> magnitude = reference::linear<double>(absolute(a), absolute(b), nullptr);
  Known known = summed(y, magnitude, static_cast<double>(a.shape.back() + 6), numerics);
  known.is_one_sided = true;  // A scale that was rounded shifts the results of its block alike.
  return judged(data, std::move(known));
}

// A kernel may multiply a sum with an infinite scale, or each of its terms.
void bound_scales(CallData& data) {
  for (HostTensor& tensor : data.tensors()) {
    if (!tensor.name.ends_with("_scale")) continue;
    for (DoubleDouble& value : tensor.data) {
      if (std::isinf(value.hi)) value = 1.0;
    }
  }
}

// The scheme of a has no scale if a consists of floats.
OpCase make_product(const Product& product, const Scheme& a, const Scheme& b, bp_dtype y,
                    bool is_exact) {
  const std::string detail = shape_text(product.a) + "_n" + std::to_string(product.n) + "_by_" +
                             shape_text(product.b_scale) + "_" + dtype_text(a.code) +
                             (a.has_zero ? "_zero_" : "_") + scheme_text(b) + dtype_text(y);
  OpCase made =
      make_case(BP_OP_MATMUL_SCALED, b.code, is_exact ? "exact_dense" : "random", detail, "dense");
  const int64_t k = product.a.back();
  const Fill half{FillKind::kUniform, 0.5, 0.5}, scales{FillKind::kUniform, 0.01, 0.5};
  const Fill tensor_scale = is_exact ? half : kTensorScale;
  const auto codes = [&](bp_dtype code) {
    if (!is_exact && dtype_bits(code) == 8 && narrow_format(code) != nullptr) {
      // Rows of 64 elements have all codes, and those of some rows are numbers without NaN.
      return k > 64 ? Fill{FillKind::kUniform, -8, 8} : kAllBits;
    }
    if (!is_exact) return is_float(code) ? kRandom : kAllBits;
    return Fill{FillKind::kExactDense, 1, dtype_bits(code) == 2 ? 1.0 : 2.0};
  };
  made.input("a", a.code, product.a, codes(a.code));
  made.input("b", b.code, {product.n, k}, codes(b.code));
  made.input("b_scale", b.scale, product.b_scale, is_exact ? half : scales);
  if (a.scale != 0) made.input("a_scale", a.scale, product.a_scale, is_exact ? half : scales);
  if (b.has_zero) made.input("b_zero", b.code, product.b_scale, zero_fill(b.code));
  if (a.has_zero) made.input("a_zero", a.code, product.a_scale, zero_fill(a.code));
  if (a.has_tensor_scale) made.input("a_tensor_scale", BP_F32, {}, tensor_scale);
  if (b.has_tensor_scale) made.input("b_tensor_scale", BP_F32, {}, tensor_scale);
  Shape shape = product.a;
  shape.back() = product.n;
  made.output("y", y, shape).reference = expected_product;
  made.derive = bound_scales;
  made.is_exact = is_exact;
  made.is_smoke = y == BP_F32;
  made.varies = false;
  return made;
}

void add_products(OpCases& cases) {
  struct Pair {
    Scheme a, b;
    bp_dtype y;
  };
  const Pair pairs[] = {
      {{BP_I8, BP_F32}, {BP_I8, BP_F32}, BP_F32},
      {{BP_F32}, {BP_I8, BP_F32}, BP_F32},
      {{BP_BF16}, {BP_I4, BP_BF16, true}, BP_BF16},
      {{BP_F32}, {BP_U4, BP_F32, true}, BP_F32},
      {{BP_F16}, {BP_I4, BP_F16}, BP_F16},
      {{BP_F32}, {BP_F4E2M1, BP_F8E8M0FNU}, BP_F32},
      {{BP_I8, BP_F32}, {BP_I4, BP_F16, true}, BP_F32},
      {{BP_I8, BP_BF16}, {BP_U4, BP_F32, true}, BP_BF16},
      {{BP_I8, BP_F32}, {BP_I8, BP_F32, true}, BP_F16},
      {{BP_I8, BP_F32}, {BP_U8, BP_F8E4M3FN}, BP_F32},
      {{BP_BF16}, {BP_U8, BP_F32, true}, BP_F32},
      {{BP_U8, BP_F32, true}, {BP_I8, BP_F32}, BP_F32},
      {{BP_I8, BP_F32, true}, {BP_U4, BP_F16, true}, BP_F32},
      {{BP_U8, BP_F32, true}, {BP_I8, BP_F32, true}, BP_BF16},
      {{BP_F32}, {BP_I2, BP_F32, true}, BP_F32},
      {{BP_I8, BP_F32}, {BP_U2, BP_F16, true}, BP_F32},
      {{BP_F32}, {BP_F8E4M3FN, BP_F32}, BP_F32},
      {{BP_BF16}, {BP_F8E5M2, BP_BF16}, BP_BF16},
      {{BP_F8E4M3FN, BP_F32}, {BP_F8E4M3FN, BP_F32}, BP_F32},
      {{BP_BF16}, {BP_F8E4M3FN, BP_F8E8M0FNU}, BP_F32},  // mxfp8
      {{BP_F32}, {BP_F6E2M3, BP_F8E8M0FNU}, BP_F32},
      {{BP_F16}, {BP_F6E3M2, BP_F8E8M0FNU}, BP_F32},
      {{BP_F8E4M3FN, BP_F8E8M0FNU}, {BP_F4E2M1, BP_F8E8M0FNU}, BP_F32},
      {{BP_F32}, {BP_F4E2M1, BP_F8E4M3FN, false, true}, BP_F32},  // nvfp4
      {{BP_F4E2M1, BP_F8E4M3FN, false, true}, {BP_F4E2M1, BP_F8E4M3FN, false, true}, BP_BF16},
  };
  for (const Pair& pair : pairs) {
    for (const Product& product : all_products()) {
      for (const bool is_exact : {false, true}) {
        cases.push_back(make_product(product, pair.a, pair.b, pair.y, is_exact));
      }
    }
  }
}

}  // namespace

void add_quantization(OpCases& cases) {
  for (const Scheme& scheme : kSchemes) {
    for (const bp_dtype number : {BP_F32, BP_F16, BP_BF16}) add_scheme(cases, scheme, number);
  }
  add_products(cases);
}

}  // namespace bp::conformance
