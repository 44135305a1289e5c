// Cases of the ops whose results or inputs are places of elements. Cases of layouts follow by rule.
#include <algorithm>
#include <type_traits>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/indexing.hpp"

namespace bp::conformance {
namespace {

Array<int64_t> number_of(int64_t count) {
  Array<int64_t> result({1});
  result[0] = count;
  return result;
}

// ---- nonzero and masked_select --------------------------------------------------------------- //

// Kernels count in blocks and in parts, which some of these shapes fill and others do not.
const std::vector<Shape>& all_shapes() {
  static const std::vector<Shape> shapes = {
      {},     {1},    {7},       {64},    {257},        {5, 7},
      {0},    {3, 0}, {3, 4, 5}, {67, 9}, {2, 3, 4, 5}, {2, 1, 2, 1, 2, 3, 2, 3},
      {9'001}};
  return shapes;
}

std::vector<Expected> expected_nonzero(const CallData& data, const Numerics&) {
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    const auto found = reference::nonzero(data.array<N>("x"));
    std::vector<Expected> expected = {exactly(found.indices)};
    if (data.has("count")) expected.push_back(exactly(number_of(found.count)));
    return judged_values(data, std::move(expected));
  });
}

std::vector<Expected> expected_masked_select(const CallData& data, const Numerics&) {
  const bp_dtype dtype = data.tensor("x").dtype;
  const auto judge = [&]<typename N>(N zero) {
    // This dtype has no 0, and its smallest number stands for it.
    if constexpr (std::is_same_v<N, double>) {
      if (dtype == BP_F8E8M0FNU) zero = 0x1p-127;
    }
    const auto found = reference::masked_select(data.array<N>("x"), data.indices("mask"), zero);
    std::vector<Expected> expected = {exactly(found.values)};
    if (data.has("count")) expected.push_back(exactly(number_of(found.count)));
    return judged_values(data, std::move(expected));
  };
  return is_coded(dtype) ? judge(double()) : with_number(dtype, judge);
}

// Makes two of three elements 0, so that places move.
void thin_out(CallData& data) {
  HostTensor& x = data.tensor(data.has("mask") ? "mask" : "x");
  for (size_t i = 0; i < x.data.size(); ++i) {
    if (i * 7 % 3 != 0) x.data[i] = DoubleDouble(0.0);
  }
}

void clear_mask(CallData& data) {
  for (DoubleDouble& value : data.tensor("mask").data) value = DoubleDouble(0.0);
}

void add_nonzero(OpCases& cases, bp_dtype dtype) {
  const auto put = [&](const Shape& shape, const std::string& fill, const Fill& numbers,
                       bool has_count) -> OpCase& {
    const std::string detail = shape_text(shape) + (has_count ? "" : "_uncounted");
    OpCase made = make_case(BP_OP_NONZERO, dtype, fill, detail, "dense");
    made.input("x", dtype, shape, numbers);
    made.output("indices", BP_I64, {element_count(shape), static_cast<int64_t>(shape.size())});
    if (has_count) made.output("count", BP_I64, {1});
    made.reference = expected_nonzero;
    made.is_smoke = is_moved_smoke_dtype(dtype);
    made.varies = false;
    made.optional_part = small_part(dtype);
    cases.push_back(std::move(made));
    return cases.back();
  };
  for (const Shape& shape : all_shapes()) put(shape, "repeat", kRepeat, true).derive = thin_out;
  put({5, 7}, "repeat", kRepeat, false);
  put({4, 33}, "special", kSpecial, true);
  if (is_float(dtype)) put({9, 33}, "sparse", kSparse, true);
}

void add_masked_select(OpCases& cases, bp_dtype dtype) {
  const auto put = [&](const Shape& shape, const std::string& detail, bool has_count) -> OpCase& {
    OpCase made =
        make_case(BP_OP_MASKED_SELECT, dtype, "coord", shape_text(shape) + detail, "dense");
    made.input("x", dtype, shape, kCoord).input("mask", BP_BOOL, shape, kExactDense);
    made.output("y", dtype, {element_count(shape)});
    if (has_count) made.output("count", BP_I64, {1});
    made.reference = expected_masked_select;
    made.is_smoke = is_moved_smoke_dtype(dtype);
    made.varies = false;
    made.optional_part = moved_part(dtype);
    cases.push_back(std::move(made));
    return cases.back();
  };
  for (const Shape& shape : all_shapes()) put(shape, "", true).derive = thin_out;
  put({5, 7}, "_all", true);
  put({5, 7}, "_none", true).derive = clear_mask;
  put({5, 7}, "_uncounted", false).derive = thin_out;
}

// ---- searchsorted ---------------------------------------------------------------------------- //

struct SearchRow {
  Shape sorted, values;
};

const std::vector<SearchRow>& search_rows() {
  static const std::vector<SearchRow> rows = {{{1}, {5}},
                                              {{7}, {33}},
                                              {{67}, {5, 7}},
                                              {{1'031}, {300}},
                                              {{64}, {}},
                                              {{0}, {4}},
                                              {{5}, {0}},
                                              {{3, 17}, {3, 40}},
                                              {{3, 40}, {3, 1}},
                                              {{2, 3, 9}, {2, 3, 5}},
                                              {{2, 0}, {2, 3}},
                                              {{0, 3}, {0, 3}},
                                              {{2, 1, 2, 1, 2, 1, 2, 6}, {2, 1, 2, 1, 2, 1, 2, 3}}};
  return rows;
}

std::vector<Expected> expected_searchsorted(const CallData& data, const Numerics&) {
  return with_number(data.tensor("sorted").dtype, [&]<typename N>(N) {
    const bool is_right = data.integer("side") == BP_SEARCHSORTED_SIDE_RIGHT;
    return judged_values(data, {exactly(reference::searchsorted(
                                   data.array<N>("sorted"), data.array<N>("values"), is_right))});
  });
}

// Puts each row in order.
void sort_rows(CallData& data) {
  HostTensor& rows = data.tensor("sorted");
  const auto length = static_cast<int64_t>(rows.shape.back());
  if (length == 0) return;
  const auto is_smaller = [](DoubleDouble a, DoubleDouble b) { return reference::is_larger(b, a); };
  for (auto row = rows.data.begin(); row != rows.data.end(); row += length) {
    std::stable_sort(row, row + length, is_smaller);
  }
}

void add_searchsorted(OpCases& cases, bp_dtype dtype) {
  const auto add = [&](const SearchRow& row, const std::string& fill, const Fill& numbers,
                       int64_t side, bp_dtype index) {
    const std::string detail = shape_text(row.sorted) + "_" + shape_text(row.values) +
                               (side == BP_SEARCHSORTED_SIDE_LEFT ? "_left" : "_right") +
                               (index == BP_I64 ? "" : "_i32");
    OpCase made = make_case(BP_OP_SEARCHSORTED, dtype, fill, detail, "dense");
    made.input("sorted", dtype, row.sorted, numbers).input("values", dtype, row.values, numbers);
    made.output("y", index, row.values).set("side", side);
    made.reference = expected_searchsorted;
    made.derive = sort_rows;
    made.is_smoke = (dtype == BP_F32 && fill == "repeat") || dtype == BP_I64;
    made.varies = false;
    cases.push_back(std::move(made));
  };
  for (const int64_t side :
       {int64_t{BP_SEARCHSORTED_SIDE_LEFT}, int64_t{BP_SEARCHSORTED_SIDE_RIGHT}}) {
    for (const SearchRow& row : search_rows()) {
      add(row, "repeat", kRepeat, side, BP_I64);
      if (is_float(dtype)) add(row, "random", kRandom, side, BP_I64);
    }
    add({{4, 21}, {4, 30}}, "special", kSpecial, side, BP_I64);
    add({{67}, {5, 7}}, "repeat", kRepeat, side, BP_I32);
  }
}

// ---- index_add and index_put ----------------------------------------------------------------- //

// Returns the most terms that one element of a sum by these indices has.
double most_terms(const Array<int64_t>& indices) {
  double most = 0;
  for (const int64_t index : indices.data) {
    most = std::fmax(most, static_cast<double>(std::ranges::count(indices.data, index)));
  }
  return most + 1;
}

std::vector<Expected> expected_index_add(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("x").dtype;
  return with_number(dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x"), src = data.array<N>("src");
    const Array<int64_t> indices = data.indices("indices");
    const auto axis = static_cast<size_t>(data.integer("axis"));
    const Array<N> y = reference::index_add(x, indices, src, axis);
    if (!is_float(dtype)) return judged_values(data, {exactly(y)});
    const Array<int64_t> acting = acting_indices(data, "indices", data.tensor("x").shape[axis]);
    return judged_sum(data, y, reference::index_add(absolute(x), indices, absolute(src), axis),
                      most_terms(acting), numerics);
  });
}

int64_t slice_count(const CallData& data) {
  const Shape& x = data.tensor("x").shape;
  return element_count(std::span(x).first(static_cast<size_t>(data.integer("indexed_ndim"))));
}

std::vector<Expected> expected_index_put(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("x").dtype;
  return with_number(dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x"), values = data.array<N>("values");
    const Array<int64_t> indices = data.indices("indices");
    const auto indexed = static_cast<size_t>(data.integer("indexed_ndim"));
    const bool accumulates = data.integer("accumulate") != 0;
    const Array<N> y = reference::index_put(x, indices, values, indexed, accumulates);
    if (!is_float(dtype)) return judged_values(data, {exactly(y)});
    const Array<N> magnitudes =
        reference::index_put(absolute(x), indices, absolute(values), indexed, accumulates);
    Known known = summed(y, magnitudes,
                         most_terms(acting_indices(data, "indices", slice_count(data))), numerics);
    if (accumulates) return judged(data, std::move(known));
    known.sums = [&] {  // Elements that are moved are exact.
      const std::vector<double> none(y.data.size());
      return Sums{{none}, {none}};
    };
    return judged(data, std::move(known));
  });
}

struct AddRow {
  Shape x;
  int64_t axis, chosen;
};

const std::vector<AddRow>& add_rows() {
  static const std::vector<AddRow> rows = {{{7}, 0, 9},       {{5, 3}, 0, 4},
                                           {{5, 17}, 1, 33},  {{64, 8}, 0, 3},
                                           {{3, 4, 5}, 1, 6}, {{3, 4, 5}, 2, 17},
                                           {{5, 3}, 0, 0},    {{5, 0}, 0, 4},
                                           {{0, 3}, 1, 2},    {{2, 1, 2, 1, 2, 1, 2, 3}, 7, 4}};
  return rows;
}

struct PutRow {
  Shape x, indices;
  int64_t indexed_ndim;
};

const std::vector<PutRow>& put_rows() {
  static const std::vector<PutRow> rows = {
      {{7}, {9}, 1},        {{5, 3}, {4}, 1},       {{5, 3}, {}, 1},
      {{5, 3}, {40}, 2},    {{64, 8}, {3, 5}, 1},   {{3, 4, 5}, {2, 3}, 2},
      {{3, 4, 5}, {70}, 3}, {{5, 3}, {0}, 1},       {{5, 0}, {4}, 1},
      {{0, 3}, {0}, 1},     {{2, 3, 4, 5}, {7}, 2}, {{2, 1, 2, 1, 2, 1, 2, 3}, {4}, 3}};
  return rows;
}

int64_t indexed_extent(const PutRow& row) {
  return element_count(std::span(row.x).first(static_cast<size_t>(row.indexed_ndim)));
}

OpCase make_add(const AddRow& row, bp_dtype dtype, const std::string& fill, const Fill& numbers,
                bp_dtype index) {
  const auto axis = static_cast<size_t>(row.axis);
  const std::string detail = shape_text(row.x) + "_axis" + std::to_string(row.axis) + "_i" +
                             std::to_string(row.chosen) + (index == BP_I64 ? "" : "_i32");
  Shape src = row.x;
  src[axis] = row.chosen;
  OpCase made = make_case(BP_OP_INDEX_ADD, dtype, fill, detail, "dense");
  made.input("x", dtype, row.x, numbers);
  made.input("indices", index, {row.chosen}, index_fill(row.x[axis]));
  made.input("src", dtype, src, numbers).output("y", dtype, row.x).set("axis", row.axis);
  made.reference = expected_index_add;
  made.optional_part = small_part(dtype);
  return made;
}

OpCase make_put(const PutRow& row, bp_dtype dtype, const std::string& fill, const Fill& numbers,
                bool accumulates, bp_dtype index) {
  const std::string detail = shape_text(row.x) + "_i" + shape_text(row.indices) + "_indexed" +
                             std::to_string(row.indexed_ndim) + (accumulates ? "_add" : "_set") +
                             (index == BP_I64 ? "" : "_i32");
  Shape values = row.indices;
  values.insert(values.end(), row.x.begin() + row.indexed_ndim, row.x.end());
  OpCase made = make_case(BP_OP_INDEX_PUT, dtype, fill, detail, "dense");
  made.input("x", dtype, row.x, numbers);
  made.input("indices", index, row.indices, index_fill(indexed_extent(row)));
  made.input("values", dtype, values, numbers).output("y", dtype, row.x);
  made.set("indexed_ndim", row.indexed_ndim).set("accumulate", int64_t{accumulates});
  made.reference = expected_index_put;
  made.optional_part = small_part(dtype);
  return made;
}

void add_sums(OpCases& cases, bp_dtype dtype, const std::string& fill, const Fill& numbers) {
  OpCases made;
  for (const AddRow& row : add_rows()) made.push_back(make_add(row, dtype, fill, numbers, BP_I64));
  for (const bool accumulates : {false, true}) {
    for (const PutRow& row : put_rows()) {
      made.push_back(make_put(row, dtype, fill, numbers, accumulates, BP_I64));
    }
  }
  made.push_back(make_add({{5, 17}, 1, 33}, dtype, fill, numbers, BP_I32));
  made.push_back(make_put({{3, 4, 5}, {2, 3}, 2}, dtype, fill, numbers, true, BP_I32));
  for (OpCase& each : made) {
    each.is_smoke = dtype == BP_F32 || dtype == BP_I64;
    each.is_exact = is_float(dtype) && fill == "exact_dense";
    each.varies = false;
    cases.push_back(std::move(each));
  }
}

void add_bounds(OpCases& cases, OutOfRange rule) {
  const AddRow added{{11, 5}, 0, 7};
  OpCase add = make_add(added, BP_F32, "coord", kExactDense, BP_I64);
  add.is_exact = true;
  cases.push_back(with_bounds(std::move(add), rule, "indices", added.x[0]));
  const PutRow put{{3, 4, 5}, {9}, 2};
  for (const bool accumulates : {false, true}) {
    OpCase made = make_put(put, BP_F32, "coord", kExactDense, accumulates, BP_I64);
    made.is_exact = true;
    cases.push_back(with_bounds(std::move(made), rule, "indices", indexed_extent(put)));
  }
}

// The stream fails, and memory outside the tensors does not change.
void add_out_of_range(OpCases& cases) {
  for (const int64_t wrong : {int64_t{-1}, int64_t{12}, int64_t{1} << 40}) {
    OpCases made;
    made.push_back(make_add({{12, 5}, 0, 7}, BP_F32, "out_of_range", kCoord, BP_I64));
    made.push_back(make_put({{3, 4, 5}, {7}, 2}, BP_F32, "out_of_range", kCoord, true, BP_I64));
    made.push_back(make_put({{3, 4, 5}, {7}, 2}, BP_F32, "out_of_range", kCoord, false, BP_I64));
    for (OpCase& each : made) {
      each.detail += "_index" + std::to_string(wrong);
      each.fails_on_device = true;
      each.derive = [wrong](CallData& data) {
        data.tensor("indices").data[3] = DoubleDouble::from_int64(wrong);
      };
      cases.push_back(std::move(each));
    }
  }
}

}  // namespace

void add_indexing(OpCases& cases) {
  for (const bp_dtype dtype : kMovedDtypes) {
    add_nonzero(cases, dtype);
    add_masked_select(cases, dtype);
  }
  for (const bp_dtype dtype : kRareMovedDtypes) add_masked_select(cases, dtype);
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16, BP_I32, BP_I64}) {
    add_searchsorted(cases, dtype);
  }
  for (const bp_dtype dtype :
       {BP_F32, BP_F64, BP_I64, BP_I32, BP_F16, BP_BF16, BP_U8, BP_I8, BP_I16}) {
    add_sums(cases, dtype, "exact_dense", kExactDense);
  }
  for (const bp_dtype dtype : kFloats) add_sums(cases, dtype, "random", kRandom);
  for (const OutOfRange rule : {OutOfRange::kClamp, OutOfRange::kUndefined}) {
    add_bounds(cases, rule);
  }
  add_out_of_range(cases);
}

}  // namespace bp::conformance
