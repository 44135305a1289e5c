// Cases of fill, copy and arange.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/narrow_format.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

std::string pair_text(Layout x, Layout y) {
  return std::string(layout_text(x)) + "_to_" + layout_text(y);
}

// ---- fill ------------------------------------------------------------------------------------ //

std::vector<Expected> expected_fill(const CallData& data, const Numerics&) {
  const HostTensor& y = data.tensor("y");
  std::byte bytes[8] = {};
  store_element(y.dtype, data.value("value"), bytes);
  Expected expected;
  expected.value.assign(static_cast<size_t>(element_count(y.shape)), load_element(y.dtype, bytes));
  return judged_values(data, {expected});
}

bp_scalar scalar_of(bp_dtype dtype, double value) {
  if (dtype == BP_BOOL) return {BP_BOOL, 0, uint64_t{value != 0}};
  if (is_float(dtype) || narrow_format(dtype) != nullptr) return float_scalar(value);
  return integer_scalar(static_cast<int64_t>(value));
}

void add_fill(OpCases& cases, bp_dtype dtype, bool is_smoke) {
  const auto add = [&](const std::string& value_text, double value, const Shape& shape,
                       Layout layout) -> OpCase& {
    OpCase made = make_case(BP_OP_FILL, dtype, value_text, shape_text(shape), layout_text(layout));
    made.output("y", dtype, shape, layout).set("value", scalar_of(dtype, value));
    made.reference = expected_fill;
    made.is_smoke = is_smoke;
    made.varies = false;
    made.optional_part = moved_part(dtype);
    cases.push_back(std::move(made));
    return cases.back();
  };
  for (const Shape& shape : std::vector<Shape>{{}, {1}, {17}, {67}, {5, 7}, {0}, {2, 3, 4, 5}}) {
    add("three", 3, shape, kDense);
  }
  for (const Layout layout : {kTransposed, kSliced, kStepped, kNegative, kOffset}) {
    add("three", 3, {5, 7}, layout);
  }
  add("zero", 0, {33}, kDense);
  const auto add_exact = [&](const char* text, const bp_scalar& value) {
    add(text, 0, {33}, kDense).attributes.back().value = value;
  };
  // A double does not hold these.
  if (dtype == BP_I64) add_exact("above53", integer_scalar((int64_t{1} << 53) + 1));
  if (dtype == BP_I64) add_exact("least", integer_scalar(INT64_MIN));
  if (dtype == BP_U64) add_exact("above63", unsigned_scalar((uint64_t{1} << 63) + 1));
  if (narrow_format(dtype) != nullptr) {
    add("tenth", 0.1, {33}, kDense);    // The value is rounded to the dtype.
    add("beyond", -1e9, {33}, kDense);  // It becomes the largest number of the dtype.
    add("nan", std::nan(""), {33}, kDense);
  }
  if (is_float(dtype)) {
    add("tenth", 0.1, {33}, kDense);  // The value is rounded to the dtype.
    add("minus_zero", -0.0, {33}, kDense);
    add("infinity", HUGE_VAL, {33}, kDense);
    add("minus_infinity", -HUGE_VAL, {33}, kDense);
    add("nan", std::nan(""), {33}, kDense);
  }
  OpCase& tensor = add("tensor", 0, {5, 7}, kDense);  // The value lies in memory of the device.
  tensor.attributes.clear();
  tensor.input("value", dtype, {}, kExactDense);
}

// Rows of packed elements. In all shapes but the last one the last axes are whole bytes.
void add_packed_fill(OpCases& cases, bp_dtype dtype) {
  const auto add = [&](const std::string& text, double value, const Shape& shape, Layout layout) {
    OpCase made = make_case(BP_OP_FILL, dtype, text, shape_text(shape), layout_text(layout));
    made.output("y", dtype, shape, layout).set("value", scalar_of(dtype, value));
    made.reference = expected_fill;
    made.varies = false;
    made.optional_part = moved_part(dtype);
    cases.push_back(std::move(made));
  };
  for (const Shape& shape : std::vector<Shape>{{4}, {5, 8}, {4, 7}, {0}, {2, 3, 4, 4}, {17}}) {
    add("three", 3, shape, kDense);
  }
  add("three", 3, {5, 8}, kOffset);
  add("minus_one", -1, {5, 8}, kDense);
  if (narrow_format(dtype) == nullptr) return;
  add("tenth", 0.1, {5, 8}, kDense);
  add("beyond", -1e9, {5, 8}, kDense);
  add("nan", std::nan(""), {5, 8}, kDense);
}

// ---- copy ------------------------------------------------------------------------------------ //

// Returns the value of x as `to` holds it, before rounding. A float loses its fraction when it
// becomes an integer.
DoubleDouble converted(bp_dtype from, bp_dtype to, DoubleDouble x) {
  if (to == BP_BOOL) return DoubleDouble(x.hi != 0 ? 1 : 0);
  if (is_float(from) && !is_float(to)) return DoubleDouble(std::trunc(x.hi));
  return x;
}

std::vector<Expected> expected_copy(const CallData& data, const Numerics&) {
  const HostTensor& x = data.tensor("x");
  const bp_dtype to = data.tensor("y").dtype;
  Expected expected;
  for (const DoubleDouble& value : x.data) {
    expected.value.push_back(converted(x.dtype, to, value));
  }
  return judged_values(data, {expected});
}

void add_copy(OpCases& cases, bp_dtype from, bp_dtype to, const std::string& fill, const Fill& data,
              const Shape& shape, Layout x, Layout y, bool is_smoke) {
  const std::string layout = x == kDense && y == kDense ? "dense" : pair_text(x, y);
  OpCase made =
      make_case(BP_OP_COPY, from, fill, shape_text(shape) + "_to_" + dtype_text(to), layout);
  made.input("x", from, shape, data, x).output("y", to, shape, y);
  made.reference = expected_copy;
  made.is_smoke = is_smoke;
  made.varies = element_count(shape) > 8 && to != BP_BOOL && from != BP_BOOL && x != kBroadcastAll;
  if (from == to) made.optional_part = moved_part(from);
  cases.push_back(std::move(made));
}

void add_same_dtype(OpCases& cases, bp_dtype dtype, bool is_smoke) {
  const auto add = [&](const std::string& fill, const Fill& data, const Shape& shape, Layout x,
                       Layout y) {
    add_copy(cases, dtype, dtype, fill, data, shape, x, y, is_smoke);
  };
  const std::vector<Shape> shapes = {{}, {1}, {9}, {17}, {67}, {0}, {3, 0, 2}, {2, 3, 4, 5}};
  for (const Shape& shape : shapes) add("coord", kCoord, shape, kDense, kDense);
  add("coord", kCoord, {2, 1, 2, 1, 2, 1, 2, 3}, kPermuted, kDense);
  for (const Layout x : {kTransposed, kSliced, kStepped, kNegative, kOffset, kBroadcastFirst,
                         kBroadcastLast, kBroadcastAll}) {
    add("coord", kCoord, {5, 7}, x, kDense);
    add("coord", kCoord, {4, 19}, x, kSliced);
  }
  for (const Layout y : {kTransposed, kSliced, kStepped, kNegative, kOffset}) {
    add("coord", kCoord, {5, 7}, kDense, y);
    add("coord", kCoord, {33, 17}, kTransposed, y);
  }
  add("coord", kCoord, {3, 4, 5}, kPermuted, kTransposed);
  const auto specials = static_cast<int64_t>(special_values(dtype).size());
  add("special", kSpecial, {2 * specials + 1}, kDense, kDense);
}

void add_packed_copy(OpCases& cases, bp_dtype dtype) {
  const auto add = [&](const Shape& shape, Layout x, Layout y) {
    add_copy(cases, dtype, dtype, "all_bits", kAllBits, shape, x, y, false);
    cases.back().varies = false;  // Few codes may be mostly zero.
  };
  for (const Shape& shape : std::vector<Shape>{{4}, {5, 8}, {4, 7}, {0}, {2, 3, 4, 4}, {17}}) {
    add(shape, kDense, kDense);
  }
  add({5, 8}, kOffset, kDense);
  add({5, 8}, kBroadcastFirst, kOffset);
  add({3, 4, 4, 8}, kReversed, kDense);  // A row counts backwards, which only kernels can move.
}

// Returns values of `from` that every other dtype can hold, except for their fractions.
Fill convertible(bp_dtype from, bp_dtype to) {
  const bool is_unsigned = to == BP_U8 || to == BP_BOOL;
  if (is_float(from) && is_float(to)) return kRandom;
  if (from == BP_BOOL) return kExactDense;
  return {FillKind::kUniform, is_unsigned ? 0.0 : -100.0, 100};
}

void add_casts(OpCases& cases, const std::vector<bp_dtype>& dtypes, bool is_smoke) {
  for (const bp_dtype from : dtypes) {
    for (const bp_dtype to : dtypes) {
      if (from == to) continue;
      const Fill data = convertible(from, to);
      add_copy(cases, from, to, "random", data, {67}, kDense, kDense, is_smoke);
      add_copy(cases, from, to, "random", data, {5, 7}, kTransposed, kSliced, is_smoke);
      // A special value of another kind does not fit an integer, and the result is undefined.
      const bool is_defined = is_float(to) || to == BP_BOOL || !is_float(from);
      const auto specials = static_cast<int64_t>(special_values(from).size());
      if (!is_defined) continue;
      add_copy(cases, from, to, "special", kSpecial, {2 * specials + 1}, kDense, kDense, is_smoke);
    }
  }
}

// Puts x beside the middle of two neighbours of y: a step of x above it, or below. A conversion by
// way of a third type rounds x to the middle, and then to the other neighbour.
void move_beside_ties(CallData& data) {
  HostTensor& x = data.tensor("x");
  const bp_dtype to = data.tensor("y").dtype;
  const int precision = float_format(to)->precision;
  const double low = std::exp2(precision - 1);
  const int most = x.dtype == BP_I64 ? 62 : 30;  // The bits of an integer of x.
  for (size_t i = 0; i < x.data.size(); ++i) {
    const double significand = low + std::fmod(static_cast<double>(i) * 0x1.3c6ep+40, low);
    const DoubleDouble middle = DoubleDouble(std::floor(significand)) + DoubleDouble(0.5);
    const bool is_above = i % 2 == 0, is_negative = i % 3 == 0;
    DoubleDouble value;
    if (is_float(x.dtype)) {
      const double scale = std::exp2(static_cast<double>(i % 8) - precision);
      const double near = middle.hi * scale;
      value = next_after(x.dtype, near, is_above ? HUGE_VAL : -HUGE_VAL);
    } else {
      const int shift = most - precision - static_cast<int>(i % 5);
      value = middle * DoubleDouble(std::exp2(std::max(1, shift)));
      value = value + DoubleDouble(is_above ? 1 : -1);
    }
    x.data[i] = is_negative ? -value : value;
  }
}

void add_casts_beside_ties(OpCases& cases) {
  struct Cast {
    bp_dtype from, to;
    bool is_core;
  };
  constexpr Cast kCasts[] = {
      {BP_F64, BP_F32, true},   {BP_F64, BP_F16, false},  {BP_F64, BP_BF16, false},
      {BP_F32, BP_F16, true},   {BP_F32, BP_BF16, true},  {BP_I64, BP_F64, true},
      {BP_I64, BP_F32, true},   {BP_I64, BP_BF16, false}, {BP_I32, BP_F32, true},
      {BP_I32, BP_BF16, false},
  };
  for (const Cast& cast : kCasts) {
    add_copy(cases, cast.from, cast.to, "beside_ties", kRandom, {257}, kDense, kDense,
             cast.is_core);
    cases.back().derive = move_beside_ties;
    if (!cast.is_core) cases.back().optional_part = "conversions to 16 bits from all dtypes";
  }
}

// Makes x NaN of both signs, with payloads that a narrower float has no bits for. A conversion that
// cuts these bits off gives infinity.
void lower_payloads(CallData& data) {
  HostTensor& x = data.tensor("x");
  const int lacking = 53 - float_format(x.dtype)->precision;  // The bits of f64 that x lacks.
  for (size_t i = 0; i < x.data.size(); i += 2) {
    const uint64_t sign = uint64_t{i / 2 % 2} << 63;
    const uint64_t payload = uint64_t{1} << (static_cast<size_t>(lacking) + i / 4 % 4);
    x.data[i] = std::bit_cast<double>(sign | (uint64_t{0x7ff} << 52) | payload);
  }
}

void add_casts_of_nan(OpCases& cases) {
  constexpr std::pair<bp_dtype, bp_dtype> kCasts[] = {
      {BP_F64, BP_F32}, {BP_F64, BP_F16}, {BP_F64, BP_BF16}, {BP_F32, BP_F16}, {BP_F32, BP_BF16}};
  for (const auto& [from, to] : kCasts) {
    add_copy(cases, from, to, "nan_payloads", kRandom, {67}, kDense, kDense, true);
    cases.back().derive = lower_payloads;
    if (from == BP_F64 && to != BP_F32) {
      cases.back().optional_part = "conversions to 16 bits from all dtypes";
    }
  }
}

// ---- arange ---------------------------------------------------------------------------------- //

std::vector<Expected> expected_arange(const CallData& data, const Numerics&) {
  const HostTensor& y = data.tensor("y");
  const DoubleDouble start = data.value("start"), step = data.value("step");
  Expected expected;
  for (int64_t i = 0; i < element_count(y.shape); ++i) {
    // The value is computed in f64 for a float, and exactly for an integer.
    const double in_f64 = start.hi + static_cast<double>(i) * step.hi;
    const DoubleDouble exact = start + DoubleDouble::from_int64(i) * step;
    expected.value.push_back(is_float(y.dtype) ? DoubleDouble(in_f64) : exact);
  }
  return judged_values(data, {expected});
}

void add_arange(OpCases& cases, bp_dtype dtype, bool is_smoke) {
  struct Range {
    const char* name;
    double start, step;
  };
  const Range ranges[] = {{"count", 0, 1}, {"back", 7, -2}, {"from5", 5, 3}};
  for (const Range& range : ranges) {
    for (const Shape& shape : std::vector<Shape>{{0}, {1}, {9}, {17}, {1031}}) {
      OpCase made = make_case(BP_OP_ARANGE, dtype, "exact",
                              std::string(range.name) + "_" + shape_text(shape), "dense");
      made.output("y", dtype, shape).reference = expected_arange;
      made.set("start", scalar_of(dtype, range.start)).set("step", scalar_of(dtype, range.step));
      made.is_smoke = is_smoke;
      made.varies = shape[0] > 1;
      made.optional_part = small_part(dtype);
      cases.push_back(made);
      if (shape[0] != 17) continue;
      OpCase with_tensors = made;
      with_tensors.attributes.clear();
      with_tensors.detail += "_tensors";
      with_tensors.input("start", dtype, {}, {FillKind::kUniform, range.start, range.start});
      with_tensors.input("step", dtype, {}, {FillKind::kUniform, range.step, range.step});
      cases.push_back(std::move(with_tensors));
      for (const Layout layout : {kStepped, kNegative, kOffset}) {
        made.tensors[0].layout = layout;
        made.layout = layout_text(layout);
        cases.push_back(made);
      }
    }
  }
  if (!is_float(dtype)) return;
  // f32 cannot hold this step. The value is computed in f64, and rounded once.
  OpCase tenth = make_case(BP_OP_ARANGE, dtype, "tenth", "257", "dense");
  tenth.output("y", dtype, {257}).reference = expected_arange;
  const double step = round_to(dtype, 0.1);
  tenth.set("start", float_scalar(1)).set("step", float_scalar(step));
  tenth.is_smoke = is_smoke;
  cases.push_back(tenth);
}

}  // namespace

void add_movement(OpCases& cases) {
  const std::vector<bp_dtype> common = {BP_F32, BP_F64, BP_I32, BP_I64, BP_BOOL};
  const std::vector<bp_dtype> others = {BP_F16, BP_BF16, BP_U8, BP_I8, BP_I16};
  for (const bp_dtype dtype : common) {
    add_fill(cases, dtype, true);
    add_same_dtype(cases, dtype, true);
    if (dtype != BP_BOOL) add_arange(cases, dtype, true);
  }
  for (const bp_dtype dtype : others) {
    add_fill(cases, dtype, false);
    add_same_dtype(cases, dtype, false);
    if (is_float(dtype)) add_arange(cases, dtype, false);
  }
  add_fill(cases, BP_U64, false);
  for (const bp_dtype dtype : {BP_F8E4M3FN, BP_F8E5M2, BP_F8E8M0FNU}) add_fill(cases, dtype, false);
  for (const bp_dtype dtype : kPackedDtypes) {
    add_packed_fill(cases, dtype);
    add_packed_copy(cases, dtype);
  }
  for (const bp_dtype dtype : {BP_U64, BP_F8E4M3FN, BP_F8E5M2, BP_F8E8M0FNU}) {
    add_same_dtype(cases, dtype, false);
  }
  for (const bp_dtype dtype : {BP_U8, BP_I8, BP_I16}) add_arange(cases, dtype, false);
  add_casts(cases, common, true);
  add_casts(cases, {BP_F32, BP_F16, BP_BF16, BP_I8, BP_U8}, false);
  add_casts_beside_ties(cases);
  add_casts_of_nan(cases);
}

}  // namespace bp::conformance
