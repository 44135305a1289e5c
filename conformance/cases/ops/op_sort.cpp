// Cases of sort and topk. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/selection.hpp"

namespace bp::conformance {
namespace {

struct Row {
  Shape x;
  int64_t axis;
  int64_t k;  // The k of topk.
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1}, 0, 1},          {{2}, 0, 1},          {{3}, 0, 3},
      {{8}, 0, 4},          {{17}, 0, 17},        {{33}, 0, 5},
      {{1031}, 0, 50},      {{5, 7}, 0, 2},       {{5, 7}, 1, 3},
      {{5, 16}, 1, 1},      {{3, 257}, 1, 257},   {{67, 5}, 0, 8},
      {{3, 4, 5}, 0, 2},    {{3, 4, 5}, 1, 3},    {{3, 4, 5}, 2, 5},
      {{2, 3, 9, 5}, 2, 4}, {{2, 3, 4, 5}, 3, 2}, {{2, 1, 2, 1, 3, 1, 2, 3}, 4, 2},
      {{5, 6}, 1, 0},       {{0}, 0, 0},          {{3, 0}, 1, 0},
      {{0, 5}, 1, 2},       {{}, 0, 1},
  };
  return rows;
}

std::vector<Expected> expected_order(const CallData& data, int64_t count, bool is_descending) {
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    const auto axis = static_cast<size_t>(data.integer("axis"));
    const auto sorted = reference::sorted(data.array<N>("x"), axis, count, is_descending);
    std::vector<Expected> expected = {exactly(sorted.values)};
    if (data.has("indices")) expected.push_back(exactly(sorted.indices));
    return judged_values(data, std::move(expected));
  });
}

std::vector<Expected> expected_sort(const CallData& data, const Numerics&) {
  const auto axis = static_cast<size_t>(data.integer("axis"));
  return expected_order(data, AxisView(data.tensor("x").shape, axis).extent,
                        data.integer("is_descending") != 0);
}

std::vector<Expected> expected_topk(const CallData& data, const Numerics&) {
  return expected_order(data, data.integer("k"), data.integer("is_largest") != 0);
}

OpCase make_row(uint32_t op, const Row& row, bp_dtype dtype, const std::string& fill,
                const Fill& data, bool is_descending, bool has_indices) {
  const bool is_sort = op == BP_OP_SORT;
  std::string detail = shape_text(row.x) + "_axis" + std::to_string(row.axis);
  if (!is_sort) detail += "_k" + std::to_string(row.k);
  detail += is_descending ? "_largest" : "_smallest";
  OpCase made = make_case(op, dtype, fill, detail + (has_indices ? "" : "_values"), "dense");
  Shape y = row.x;
  if (!is_sort && !y.empty()) y[static_cast<size_t>(row.axis)] = row.k;
  made.input("x", dtype, row.x, data).output("y", dtype, y);
  if (has_indices) made.output("indices", BP_I64, y);
  made.set("axis", row.axis).set(is_sort ? "is_descending" : "is_largest", int64_t{is_descending});
  if (!is_sort) made.set("k", row.k);
  made.reference = is_sort ? expected_sort : expected_topk;
  made.varies = false;
  made.optional_part = small_part(dtype);
  return made;
}

void add_rows(OpCases& cases, bp_dtype dtype, const std::string& fill, const Fill& data) {
  for (const uint32_t op : {uint32_t{BP_OP_SORT}, uint32_t{BP_OP_TOPK}}) {
    for (const Row& row : all_rows()) {
      for (const bool is_descending : {false, true}) {
        for (const bool has_indices : {true, false}) {
          if (!has_indices && row.x.size() != 2) continue;
          OpCase made = make_row(op, row, dtype, fill, data, is_descending, has_indices);
          made.is_smoke = (dtype == BP_F32 && fill == "repeat") || dtype == BP_I64;
          cases.push_back(std::move(made));
        }
      }
    }
  }
}

// Indices of i32.
void add_i32(OpCases& cases, bp_dtype dtype) {
  for (const uint32_t op : {uint32_t{BP_OP_SORT}, uint32_t{BP_OP_TOPK}}) {
    for (const Row& row : all_rows()) {
      OpCase made = make_row(op, row, dtype, "repeat", kRepeat, true, true);
      made.tensors.back().dtype = BP_I32;
      made.detail += "_i32";
      made.is_smoke = dtype == BP_F32;
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace

void add_sort(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    add_rows(cases, dtype, "random", kRandom);
    add_rows(cases, dtype, "repeat", kRepeat);    // The data have equal elements.
    add_rows(cases, dtype, "special", kSpecial);  // The data have zeros of both signs, infinities
                                                  // and NaN.
    add_rows(cases, dtype, "sparse", kSparse);
  }
  for (const bp_dtype dtype : {BP_I32, BP_I64}) {
    add_rows(cases, dtype, "exact_dense", kExactDense);
    add_rows(cases, dtype, "special", kSpecial);
  }
  for (const bp_dtype dtype : {BP_U8, BP_I8, BP_I16, BP_BOOL}) {
    add_rows(cases, dtype, "repeat", kRepeat);
  }
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_I32}) add_i32(cases, dtype);
}

}  // namespace bp::conformance
