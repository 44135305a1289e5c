// Cases of the ops that put elements into other places: flip, roll, tril, triu, pad, one_hot,
// masked_fill and tile. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/arrangement.hpp"

namespace bp::conformance {
namespace {

using reference::Pads;
using reference::Triangle;
using Values = Array<DoubleDouble>;

size_t axis_of(const CallData& data) { return static_cast<size_t>(data.integer("axis")); }

std::vector<Expected> arranged(const CallData& data, const Values& y) {
  return judged_values(data, {exactly(y)});
}

// Returns the value as an element of the dtype holds it.
DoubleDouble stored(bp_dtype dtype, DoubleDouble value) {
  std::byte bytes[8] = {};
  store_element(dtype, value, bytes);
  return load_element(dtype, bytes);
}

// A value that each dtype holds and that is no zero.
double mark_of(bp_dtype dtype) { return dtype == BP_BOOL ? 1 : 2; }

bp_scalar mark_scalar(bp_dtype dtype) {
  if (dtype == BP_BOOL) return {BP_BOOL, 0, 1};
  const bool is_real = is_float(dtype) || is_coded(dtype);
  return is_real ? float_scalar(mark_of(dtype)) : integer_scalar(2);
}

// Returns a row with x, to which the caller adds the rest.
OpCase start(uint32_t op, bp_dtype dtype, const Shape& x, const std::string& detail,
             const Reference& reference) {
  OpCase made = make_case(op, dtype, "coord", shape_text(x) + detail, "dense");
  made.input("x", dtype, x, kCoord).reference = reference;
  made.is_smoke = is_moved_smoke_dtype(dtype);
  made.varies = false;
  made.optional_part = moved_part(dtype);
  return made;
}

// Appends the row, and one with the number `value` in a tensor.
void add_with_value(OpCases& cases, OpCase row, bp_dtype dtype) {
  OpCase in_tensor = row;
  in_tensor.detail += "_tensor";
  in_tensor.input("value", dtype, {}, {FillKind::kUniform, mark_of(dtype), mark_of(dtype)});
  cases.push_back(std::move(row.set("value", mark_scalar(dtype))));
  cases.push_back(std::move(in_tensor));
}

struct Row {
  Shape x;
  int64_t axis;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1}, 0},          {{7}, 0},          {{67}, 0},
      {{1031}, 0},       {{0}, 0},          {{5, 3}, 0},
      {{5, 3}, 1},       {{5, 17}, 1},      {{33, 17}, 0},
      {{0, 3}, 1},       {{5, 0}, 1},       {{3, 4, 5}, 1},
      {{2, 3, 4, 5}, 2}, {{2, 3, 4, 5}, 3}, {{2, 1, 2, 1, 2, 1, 2, 3}, 7},
  };
  return rows;
}

std::string axis_text(int64_t axis) { return "_axis" + std::to_string(axis); }

int64_t extent_of(const Row& row) { return row.x[static_cast<size_t>(row.axis)]; }

Shape with_extent(const Row& row, int64_t extent) {
  Shape shape = row.x;
  shape[static_cast<size_t>(row.axis)] = extent;
  return shape;
}

// ---- flip, roll and tile --------------------------------------------------------------------- //

std::vector<Expected> expected_flip(const CallData& data, const Numerics&) {
  return arranged(data, reference::flip(data.array<DoubleDouble>("x"), axis_of(data)));
}

void add_flip(OpCases& cases, bp_dtype dtype) {
  for (const Row& row : all_rows()) {
    OpCase made = start(BP_OP_FLIP, dtype, row.x, axis_text(row.axis), expected_flip);
    made.output("y", dtype, row.x).set("axis", row.axis);
    cases.push_back(std::move(made));
  }
}

std::vector<Expected> expected_roll(const CallData& data, const Numerics&) {
  return arranged(
      data, reference::roll(data.array<DoubleDouble>("x"), data.integer("shift"), axis_of(data)));
}

void add_roll(OpCases& cases, bp_dtype dtype) {
  const auto add = [&](const Row& row, int64_t shift) {
    const std::string detail = axis_text(row.axis) + "_by" + std::to_string(shift);
    OpCase made = start(BP_OP_ROLL, dtype, row.x, detail, expected_roll);
    made.output("y", dtype, row.x).set("shift", shift).set("axis", row.axis);
    cases.push_back(std::move(made));
  };
  // The bounds come first, because cases of bad input change the first row of each rank.
  add({{7}, 0}, int64_t{1} << 62);
  add({{5, 3}, 1}, -(int64_t{1} << 62));
  for (const Row& row : all_rows()) {
    for (const int64_t shift : {1, -2}) add(row, shift);
  }
  // As far as the axis reaches, beyond, and nowhere.
  for (const int64_t shift : {0, 5, -5, 6, -13, 1000}) add({{5, 3}, 0}, shift);
}

std::vector<Expected> expected_tile(const CallData& data, const Numerics&) {
  return arranged(
      data, reference::tile(data.array<DoubleDouble>("x"), data.integer("count"), axis_of(data)));
}

void add_tile(OpCases& cases, bp_dtype dtype) {
  const auto add = [&](const Row& row, int64_t count) {
    const std::string detail = axis_text(row.axis) + "_n" + std::to_string(count);
    OpCase made = start(BP_OP_TILE, dtype, row.x, detail, expected_tile);
    made.output("y", dtype, with_extent(row, extent_of(row) * count));
    made.set("count", count).set("axis", row.axis);
    cases.push_back(std::move(made));
  };
  for (const Row& row : all_rows()) add(row, 3);
  for (const int64_t count : {0, 1, 17}) add({{5, 3}, 1}, count);
}

// ---- tril and triu --------------------------------------------------------------------------- //

std::vector<Expected> expected_triangle(const CallData& data, const Numerics&) {
  const Triangle kept = data.op() == BP_OP_TRIL ? Triangle::kLower : Triangle::kUpper;
  const DoubleDouble zero = stored(data.tensor("x").dtype, 0);
  return arranged(data, reference::triangle(data.array<DoubleDouble>("x"), kept,
                                            data.integer("diagonal"), zero));
}

void add_triangle(OpCases& cases, uint32_t op, bp_dtype dtype) {
  const auto add = [&](const Shape& x, int64_t diagonal) -> OpCase& {
    OpCase made = start(op, dtype, x, "_diagonal" + std::to_string(diagonal), expected_triangle);
    made.output("y", dtype, x).set("diagonal", diagonal);
    cases.push_back(std::move(made));
    return cases.back();
  };
  for (const Shape& x : std::vector<Shape>{{1, 1},
                                           {5, 5},
                                           {5, 17},
                                           {17, 5},
                                           {33, 67},
                                           {0, 3},
                                           {3, 0},
                                           {3, 4, 5},
                                           {2, 3, 4, 4},
                                           {2, 1, 2, 1, 2, 1, 3, 2}}) {
    for (const int64_t diagonal : {0, 1, -1}) add(x, diagonal);
  }
  // The corners, all of the matrix or nothing of it, and far outside.
  for (const int64_t diagonal : {3, -2, 4, -3, 100, -100}) add({3, 4}, diagonal);
  for (const int64_t diagonal : {INT64_MIN, INT64_MAX}) add({3, 4}, diagonal);
  OpCase& made = add({6, 11}, 2);
  made.layout = "inplace_dense";
  made.tensors.back().alias = "x";
}

// ---- pad ------------------------------------------------------------------------------------- //

struct PadMode {
  const char* name;
  int64_t value;
  Pads::Mode mode;
};

// Cases of bad input change the first row of each rank, and the mode before replicate is reflect.
constexpr PadMode kPadModes[] = {
    {"replicate", BP_PAD_MODE_REPLICATE, Pads::Mode::kReplicate},
    {"constant", BP_PAD_MODE_CONSTANT, Pads::Mode::kConstant},
    {"reflect", BP_PAD_MODE_REFLECT, Pads::Mode::kReflect},
};

std::vector<Expected> expected_pad(const CallData& data, const Numerics&) {
  const auto* const found = std::ranges::find(kPadModes, data.integer("mode"), &PadMode::value);
  const Pads pads{axis_of(data), data.integer("before"), data.integer("after"), found->mode};
  const DoubleDouble value = stored(data.tensor("x").dtype, data.value("value"));
  return arranged(data, reference::pad(data.array<DoubleDouble>("x"), pads, value));
}

void add_pad(OpCases& cases, bp_dtype dtype) {
  const auto make = [&](const Row& row, const PadMode& mode, int64_t before, int64_t after) {
    const std::string detail = axis_text(row.axis) + "_" + mode.name + std::to_string(before) +
                               "_" + std::to_string(after);
    OpCase made = start(BP_OP_PAD, dtype, row.x, detail, expected_pad);
    made.output("y", dtype, with_extent(row, before + extent_of(row) + after));
    made.set("axis", row.axis).set("before", before).set("after", after).set("mode", mode.value);
    return made;
  };
  for (const PadMode& mode : kPadModes) {
    const bool is_constant = mode.mode == Pads::Mode::kConstant;
    const auto add = [&](const Row& row, int64_t before, int64_t after) {
      OpCase made = make(row, mode, before, after);
      if (is_constant) return add_with_value(cases, std::move(made), dtype);
      cases.push_back(std::move(made.set("value", mark_scalar(dtype))));
    };
    for (const Row& row : all_rows()) {
      // A reflected pad is shorter than the axis, and an empty axis has nothing to repeat.
      const int64_t most = is_constant ? 5 : extent_of(row) - 1;
      if (most > 0) add(row, std::min<int64_t>(most, 2), std::min<int64_t>(most, 4));
      add(row, 0, 0);
    }
    for (const auto& [before, after] : {std::pair{0, 3}, {3, 0}, {4, 4}}) {
      add({{5, 3}, 0}, before, after);
    }
    if (mode.mode != Pads::Mode::kReflect) add({{5, 3}, 1}, 7, 40);
  }
}

// ---- one_hot --------------------------------------------------------------------------------- //

std::vector<Expected> expected_one_hot(const CallData& data, const Numerics&) {
  return arranged(
      data, reference::one_hot<DoubleDouble>(data.indices("indices"), data.integer("num_classes")));
}

void add_one_hot(OpCases& cases, bp_dtype dtype, bp_dtype index) {
  const auto add = [&](const Shape& indices, int64_t classes) {
    const std::string suffix = index == BP_I64 ? "" : "_i32";
    OpCase made = make_case(BP_OP_ONE_HOT, dtype, "index",
                            shape_text(indices) + "_c" + std::to_string(classes) + suffix, "dense");
    Shape shape = indices;
    shape.push_back(classes);
    // Some indices name no class.
    const Fill data{FillKind::kIndex, -1, static_cast<double>(classes + 1)};
    made.input("indices", index, indices, data).output("y", dtype, shape);
    made.set("num_classes", classes).reference = expected_one_hot;
    made.is_smoke = is_smoke_dtype(dtype);
    made.varies = false;
    made.optional_part = small_part(dtype);
    cases.push_back(std::move(made));
  };
  for (const Shape& indices : std::vector<Shape>{
           {}, {1}, {7}, {33}, {0}, {5, 3}, {3, 0}, {3, 4, 5}, {2, 1, 2, 1, 2, 1, 3}}) {
    add(indices, 5);
  }
  for (const int64_t classes : {0, 1, 17, 257}) add({7}, classes);
}

// ---- masked_fill ----------------------------------------------------------------------------- //

std::vector<Expected> expected_masked_fill(const CallData& data, const Numerics&) {
  const DoubleDouble value = stored(data.tensor("x").dtype, data.value("value"));
  return arranged(
      data, reference::masked_fill(data.array<DoubleDouble>("x"), data.indices("mask"), value));
}

void add_masked_fill(OpCases& cases, bp_dtype dtype) {
  const auto make = [&](const Shape& x) {
    OpCase made = start(BP_OP_MASKED_FILL, dtype, x, "", expected_masked_fill);
    made.input("mask", BP_BOOL, x, kExactDense).output("y", dtype, x);
    return made;
  };
  for (const Shape& x : std::vector<Shape>{
           {}, {1}, {17}, {257}, {0}, {4, 0}, {5, 7}, {3, 4, 5}, {2, 1, 2, 1, 2, 1, 2, 3}}) {
    add_with_value(cases, make(x), dtype);
  }
  OpCase made = make({6, 11});
  made.layout = "inplace_dense";
  made.tensors.back().alias = "x";
  cases.push_back(std::move(made.set("value", mark_scalar(dtype))));
}

}  // namespace

void add_arrangement(OpCases& cases) {
  const auto add = [&](bp_dtype dtype) {
    add_flip(cases, dtype);
    add_roll(cases, dtype);
    add_triangle(cases, BP_OP_TRIL, dtype);
    add_triangle(cases, BP_OP_TRIU, dtype);
    add_pad(cases, dtype);
    add_masked_fill(cases, dtype);
    add_tile(cases, dtype);
  };
  for (const bp_dtype dtype : kMovedDtypes) add(dtype);
  for (const bp_dtype dtype : kRareMovedDtypes) add(dtype);
  for (const bp_dtype dtype :
       {BP_F32, BP_F64, BP_I64, BP_I32, BP_F16, BP_BF16, BP_BOOL, BP_U8, BP_I8, BP_I16}) {
    add_one_hot(cases, dtype, BP_I64);
  }
  for (const bp_dtype dtype : {BP_F32, BP_I64}) add_one_hot(cases, dtype, BP_I32);
}

}  // namespace bp::conformance
