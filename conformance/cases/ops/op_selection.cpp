// Cases of the ops that choose and move elements: cat, where, gather, scatter, scatter_reduce and
// index_select. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/selection.hpp"

namespace bp::conformance {
namespace {

// Calls `work` with a number that holds each value of the dtype.
template <typename Work>
auto with_moved(bp_dtype dtype, Work work) {
  return is_coded(dtype) ? work(double()) : with_number(dtype, work);
}

size_t axis_of(const CallData& data) { return static_cast<size_t>(data.integer("axis")); }

template <typename N>
std::vector<Expected> moved(const CallData& data, const Array<N>& y) {
  return judged_values(data, {exactly(y)});
}

// Any codes show whether a packed element was moved; a coordinate does not fit one.
Fill moved_fill(bp_dtype dtype) { return is_packed(dtype) ? kAllBits : kCoord; }

// Returns the number of elements in one step along the axis in front of `axis`.
int64_t elements_from(const Shape& shape, int64_t axis) {
  return element_count(Shape(shape.begin() + axis, shape.end()));
}

// Four elements of each packed dtype are whole bytes.
bool is_whole(int64_t count) { return count % 4 == 0; }

// ---- cat ------------------------------------------------------------------------------------- //

struct CatRow {
  Shape x;  // The shape of the first tensor.
  int64_t axis;
  std::vector<int64_t> extents;  // The extent of each tensor along the axis.
};

const std::vector<CatRow>& cat_rows() {
  static const std::vector<CatRow> rows = {
      {{5}, 0, {5}},
      {{4}, 0, {4, 4}},
      {{1}, 0, {1, 17, 0, 3}},
      {{0}, 0, {0, 0}},
      {{5, 7}, 0, {5, 1, 3}},
      {{5, 7}, 1, {7, 16, 1}},
      {{16, 16}, 1, {16, 16}},
      {{3, 0}, 1, {0, 5}},
      {{0, 4}, 1, {4, 4}},
      {{3, 4, 5}, 0, {3, 2}},
      {{3, 4, 5}, 1, {4, 1, 9}},
      {{3, 4, 5}, 2, {5, 8}},
      {{2, 3, 4, 5}, 1, {3, 3}},
      {{2, 3, 4, 5}, 3, {5, 1}},
      {{2, 1, 2, 1, 2, 1, 2, 3}, 5, {1, 2}},
      {{3, 2}, 0, std::vector<int64_t>(40, 3)},
      {{3, 2}, 1, {2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}},
  };
  return rows;
}

std::vector<Expected> expected_cat(const CallData& data, const Numerics&) {
  return with_moved(data.tensor("y").dtype, [&]<typename N>(N) {
    std::vector<Array<N>> xs;
    for (size_t i = 0; i < data.list_size("xs"); ++i) xs.push_back(data.array<N>("xs", i));
    return moved(data, reference::cat(xs, axis_of(data)));
  });
}

void add_cat(OpCases& cases, bp_dtype dtype) {
  for (const CatRow& row : cat_rows()) {
    const int64_t inner = elements_from(row.x, row.axis + 1);
    const auto fills_bytes = [&](int64_t extent) { return is_whole(extent * inner); };
    if (is_packed(dtype) && !std::ranges::all_of(row.extents, fills_bytes)) continue;
    const std::string detail = shape_text(row.x) + "_n" + std::to_string(row.extents.size()) +
                               "_axis" + std::to_string(row.axis);
    OpCase made =
        make_case(BP_OP_CAT, dtype, is_packed(dtype) ? "all_bits" : "coord", detail, "dense");
    const auto axis = static_cast<size_t>(row.axis);
    Shape shape = row.x, joined = row.x;
    joined[axis] = 0;
    for (const int64_t extent : row.extents) {
      shape[axis] = extent;
      joined[axis] += extent;
      made.input("xs", dtype, shape, moved_fill(dtype));
    }
    made.output("y", dtype, joined).set("axis", row.axis).reference = expected_cat;
    made.is_smoke = is_moved_smoke_dtype(dtype);
    made.varies = element_count(joined) > 8 && dtype != BP_BOOL && !is_packed(dtype);
    made.optional_part = moved_part(dtype);
    cases.push_back(std::move(made));
  }
}

// ---- where ----------------------------------------------------------------------------------- //

// A scalar keeps the precision of acc(a) until the result is rounded.
HostTensor second_choice(const CallData& data) {
  if (data.has("b")) return data.tensor("b");
  HostTensor b = data.tensor("a");
  std::ranges::fill(b.data, data.operand("b", b.dtype));
  return b;
}

std::vector<Expected> expected_where(const CallData& data, const Numerics&) {
  const Array<int64_t> condition = data.indices("condition");
  const HostTensor b = second_choice(data);
  Expected expected;
  expected.value = data.tensor("a").data;
  for (int64_t i = 0; i < condition.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (condition[i] == 0) expected.value[at] = b.data[at];
  }
  return judged_values(data, {expected});
}

void add_where(OpCases& cases, bp_dtype dtype) {
  const auto add = [&](const Shape& shape, const std::string& fill, const Fill& a, const Fill& b,
                       const std::string& layout = "dense") -> OpCase& {
    OpCase made = make_case(BP_OP_WHERE, dtype, fill, shape_text(shape), layout);
    made.input("condition", BP_BOOL, shape, kExactDense);
    made.input("a", dtype, shape, a).input("b", dtype, shape, b).output("y", dtype, shape);
    made.reference = expected_where;
    made.is_smoke = is_moved_smoke_dtype(dtype);
    made.varies = element_count(shape) > 8 && fill == "coord" && dtype != BP_BOOL;
    made.optional_part = moved_part(dtype);
    cases.push_back(std::move(made));
    return cases.back();
  };
  const Fill other =
      dtype == BP_BOOL || is_unsigned(dtype) || is_coded(dtype) ? kRepeat : kExactDense;
  for (const Shape& shape : std::vector<Shape>{{},
                                               {1},
                                               {3},
                                               {8},
                                               {17},
                                               {33},
                                               {257},
                                               {1031},
                                               {0},
                                               {4, 0},
                                               {5, 7},
                                               {3, 4, 5},
                                               {2, 3, 4, 5},
                                               {2, 1, 2, 1, 2, 1, 2, 3}}) {
    add(shape, "coord", kCoord, other);
  }
  for (const char* input : {"a", "b"}) {
    OpCase& made = add({6, 11}, "coord", kCoord, other, std::string("inplace_") + input);
    made.tensors.back().alias = input;
  }
  const auto specials = static_cast<int64_t>(special_values(dtype).size());
  add({specials, specials}, "special", kSpecial, kSpecialSlow);
  OpCase& made = add({5, 17}, "coord", kCoord, other, "scalar_b");
  made.tensors.erase(made.tensors.begin() + 2);
  const bool is_real = is_float(dtype) || is_coded(dtype);
  made.set("b", dtype == BP_BOOL ? bp_scalar{BP_BOOL, 0, 1}
                                 : (is_real ? float_scalar(0.1) : integer_scalar(-3)));
  if (is_unsigned(dtype)) made.attributes.back().value = integer_scalar(200);
}

// ---- Indices along an axis ------------------------------------------------------------------- //

struct Row {
  Shape x;
  int64_t axis;
  int64_t chosen;  // The number of indices along the axis.
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1}, 0, 2},          {{7}, 0, 9},
      {{17}, 0, 5},         {{67}, 0, 70},
      {{5, 3}, 0, 4},       {{5, 3}, 1, 4},
      {{5, 17}, 0, 9},      {{5, 17}, 1, 33},
      {{3, 1031}, 1, 5},    {{64, 8}, 0, 3},
      {{3, 4, 5}, 0, 2},    {{3, 4, 5}, 1, 6},
      {{3, 4, 5}, 2, 17},   {{2, 3, 4, 5}, 1, 2},
      {{2, 3, 4, 5}, 3, 7}, {{5, 3}, 0, 0},
      {{5, 0}, 0, 4},       {{0, 3}, 1, 2},
      {{0}, 0, 0},          {{2, 1, 2, 1, 2, 1, 2, 3}, 7, 4},
      {{}, 0, 1},
  };
  return rows;
}

std::string detail_of(const Row& row) {
  return shape_text(row.x) + "_axis" + std::to_string(row.axis) + "_i" + std::to_string(row.chosen);
}

Shape chosen_shape(const Row& row) {
  Shape shape = row.x;
  if (!shape.empty()) shape[static_cast<size_t>(row.axis)] = row.chosen;
  return shape;
}

Fill indices_of(const Row& row) {
  return index_fill(AxisView(row.x, static_cast<size_t>(row.axis)).extent);
}

// Returns a plain row, from which others are made.
OpCase start(uint32_t op, bp_dtype dtype, const std::string& fill, const Row& row,
             const Reference& reference) {
  OpCase made = make_case(op, dtype, fill, detail_of(row), "dense");
  made.set("axis", row.axis).reference = reference;
  made.is_smoke = is_moved_smoke_dtype(dtype);
  made.varies = false;
  made.optional_part = moved_part(dtype);
  return made;
}

std::vector<Expected> expected_gather(const CallData& data, const Numerics&) {
  return with_moved(data.tensor("x").dtype, [&]<typename N>(N) {
    return moved(data,
                 reference::gather(data.array<N>("x"), data.indices("indices"), axis_of(data)));
  });
}

std::vector<Expected> expected_index_select(const CallData& data, const Numerics&) {
  return with_moved(data.tensor("x").dtype, [&]<typename N>(N) {
    return moved(
        data, reference::index_select(data.array<N>("x"), data.indices("indices"), axis_of(data)));
  });
}

std::vector<Expected> expected_scatter(const CallData& data, const Numerics&) {
  return with_moved(data.tensor("x").dtype, [&]<typename N>(N) {
    return moved(data, reference::scatter(data.array<N>("x"), data.indices("indices"),
                                          data.array<N>("src"), axis_of(data)));
  });
}

// Returns the most terms that one element of the result has.
double most_terms(const CallData& data) {
  const Array<int64_t> indices = data.indices("indices");
  Array<double> ones(indices.shape), x(data.tensor("x").shape);
  for (double& value : ones.data) value = 1;
  double most = 0;
  for (const double count : reference::scatter_sum(x, indices, ones, axis_of(data)).data) {
    most = std::fmax(most, count);
  }
  return most + 1;
}

std::vector<Expected> expected_scatter_reduce(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("x").dtype;
  return with_number(dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x"), src = data.array<N>("src");
    const Array<int64_t> indices = data.indices("indices");
    const Array<N> y = reference::scatter_sum(x, indices, src, axis_of(data));
    if (!is_float(dtype)) return judged_values(data, {exactly(y)});
    return judged_sum(data, y,
                      reference::scatter_sum(absolute(x), indices, absolute(src), axis_of(data)),
                      most_terms(data), numerics);
  });
}

void add_index_select(OpCases& cases, bp_dtype dtype) {
  for (const Row& row : all_rows()) {
    if (row.x.empty()) continue;  // index_select needs an axis.
    if (is_packed(dtype) && !is_whole(elements_from(row.x, row.axis + 1))) continue;
    OpCase select = start(BP_OP_INDEX_SELECT, dtype, is_packed(dtype) ? "all_bits" : "coord", row,
                          expected_index_select);
    select.input("x", dtype, row.x, moved_fill(dtype));
    select.input("indices", BP_I64, {row.chosen}, indices_of(row));
    select.output("y", dtype, chosen_shape(row));
    cases.push_back(std::move(select));
  }
}

void add_gather(OpCases& cases, bp_dtype dtype) {
  for (const Row& row : all_rows()) {
    OpCase gather = start(BP_OP_GATHER, dtype, "coord", row, expected_gather);
    gather.input("x", dtype, row.x, kCoord);
    gather.input("indices", BP_I64, chosen_shape(row), indices_of(row));
    gather.output("y", dtype, chosen_shape(row));
    cases.push_back(std::move(gather));
  }
}

OpCase make_scatter(uint32_t op, bp_dtype dtype, const std::string& fill, const Row& row,
                    const Fill& data) {
  const Reference& reference =
      op == BP_OP_SCATTER ? Reference(expected_scatter) : Reference(expected_scatter_reduce);
  OpCase made = start(op, dtype, fill, row, reference);
  made.input("x", dtype, row.x, data);
  made.input("indices", BP_I64, chosen_shape(row), indices_of(row));
  made.input("src", dtype, chosen_shape(row), data).output("y", dtype, row.x);
  if (op == BP_OP_SCATTER_REDUCE) {
    made.optional_part = small_part(dtype);
    made.set("reduction", int64_t{BP_SCATTER_REDUCE_REDUCTION_SUM});
  }
  return made;
}

// Makes the indices a permutation: there are as many as elements, and each element is named once.
void permute_indices(CallData& data) {
  HostTensor& indices = data.tensor("indices");
  const AxisView view(indices.shape, axis_of(data));
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    for (int64_t i = 0; i < view.extent; ++i) {
      const int64_t named = (view.extent - 1 - i + outer + inner) % view.extent;
      indices.data[static_cast<size_t>(view.at(outer, i, inner))] = DoubleDouble::from_int64(named);
    }
  });
}

void add_scatter(OpCases& cases, uint32_t op, bp_dtype dtype, const std::string& fill,
                 const Fill& data) {
  const bool is_exact = is_float(dtype) && fill == "exact_dense";
  for (const Row& row : all_rows()) {
    OpCase made = make_scatter(op, dtype, fill, row, data);
    made.is_exact = is_exact;
    cases.push_back(made);
    if (row.x.size() != 3) continue;
    made.layout = "inplace_dense";
    made.tensors.back().alias = "x";
    cases.push_back(std::move(made));
  }
  for (const Row& row : std::vector<Row>{{{17}, 0, 17}, {{5, 9}, 0, 5}, {{5, 9}, 1, 9}}) {
    OpCase made = make_scatter(op, dtype, fill, row, data);
    made.detail += "_permuted";
    made.is_exact = is_exact;
    made.derive = permute_indices;
    cases.push_back(std::move(made));
  }
}

// ---- An index out of range ------------------------------------------------------------------- //

// The stream fails, and memory outside the tensors does not change.
void add_out_of_range(OpCases& cases) {
  for (const int64_t wrong : {int64_t{-1}, int64_t{11}, int64_t{1} << 40}) {
    const Row row{{11, 5}, 0, 7};
    OpCases made;
    made.push_back(start(BP_OP_GATHER, BP_F32, "out_of_range", row, expected_gather));
    made.back().input("x", BP_F32, row.x, kCoord);
    made.back().input("indices", BP_I64, chosen_shape(row), indices_of(row));
    made.back().output("y", BP_F32, chosen_shape(row));
    made.push_back(start(BP_OP_INDEX_SELECT, BP_F32, "out_of_range", row, expected_index_select));
    made.back().input("x", BP_F32, row.x, kCoord);
    made.back().input("indices", BP_I64, {row.chosen}, indices_of(row));
    made.back().output("y", BP_F32, chosen_shape(row));
    for (const uint32_t op : {uint32_t{BP_OP_SCATTER}, uint32_t{BP_OP_SCATTER_REDUCE}}) {
      made.push_back(make_scatter(op, BP_F32, "out_of_range", row, kCoord));
    }
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

// Cases with indices out of range that do not fail. One index moves single elements, or whole rows.
void add_bounds(OpCases& cases, OutOfRange rule, bp_dtype index) {
  for (const Row& row : std::vector<Row>{{{11, 5}, 0, 7}, {{5, 33}, 1, 70}, {{3, 4, 40}, 1, 6}}) {
    OpCases made;
    made.push_back(start(BP_OP_GATHER, BP_F32, "coord", row, expected_gather));
    made.back().input("x", BP_F32, row.x, kCoord);
    made.back().input("indices", index, chosen_shape(row), indices_of(row));
    made.back().output("y", BP_F32, chosen_shape(row));
    made.push_back(start(BP_OP_INDEX_SELECT, BP_F32, "coord", row, expected_index_select));
    made.back().input("x", BP_F32, row.x, kCoord);
    made.back().input("indices", index, {row.chosen}, indices_of(row));
    made.back().output("y", BP_F32, chosen_shape(row));
    for (const uint32_t op : {uint32_t{BP_OP_SCATTER}, uint32_t{BP_OP_SCATTER_REDUCE}}) {
      made.push_back(make_scatter(op, BP_F32, "coord", row, kExactDense));
      made.back().tensors[1].dtype = index;
      made.back().is_exact = true;
    }
    for (OpCase& each : made) {
      each.detail += index == BP_I64 ? "" : "_i32";
      const int64_t extent = row.x[static_cast<size_t>(row.axis)];
      cases.push_back(with_bounds(std::move(each), rule, "indices", extent));
    }
  }
}

}  // namespace

void add_selection(OpCases& cases) {
  const auto add_moves = [&](bp_dtype dtype) {
    add_cat(cases, dtype);
    add_where(cases, dtype);
    add_gather(cases, dtype);
    add_index_select(cases, dtype);
    add_scatter(cases, BP_OP_SCATTER, dtype, "coord", kCoord);
  };
  for (const bp_dtype dtype : kMovedDtypes) add_moves(dtype);
  for (const bp_dtype dtype : kRareMovedDtypes) add_moves(dtype);
  for (const bp_dtype dtype : kPackedDtypes) {
    add_cat(cases, dtype);
    add_index_select(cases, dtype);
  }
  for (const bp_dtype dtype :
       {BP_F32, BP_F64, BP_I64, BP_I32, BP_F16, BP_BF16, BP_U8, BP_I8, BP_I16}) {
    add_scatter(cases, BP_OP_SCATTER_REDUCE, dtype, "exact_dense", kExactDense);
  }
  for (const bp_dtype dtype : kFloats) {
    add_scatter(cases, BP_OP_SCATTER_REDUCE, dtype, "random", kRandom);
  }
  add_out_of_range(cases);
  for (const bp_dtype index : {BP_I64, BP_I32}) {
    add_bounds(cases, OutOfRange::kClamp, index);
    add_bounds(cases, OutOfRange::kUndefined, index);
  }
}

}  // namespace bp::conformance
