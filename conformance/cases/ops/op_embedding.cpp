// Cases of embedding and its gradient.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/embedding.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

struct Row {
  int64_t rows, width;
  Shape indices;
  Layout table = kDense;  // The layout of weight or grad_y.
  Layout index = kDense;
  Layout result = kDense;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {5, 3, {4}},
      {1, 1, {1}},
      {7, 1, {9}},
      {11, 17, {5, 3}},
      {64, 8, {2, 2, 3}},
      {7, 12, {9}},
      {6, 33, {}},
      {5, 3, {0}},
      {5, 0, {4}},
      {9, 67, {70}},
      {3, 5, {300}},  // Very many positions name the same row.
      {11, 17, {5, 3}, kTransposed},
      {11, 17, {5, 3}, kSliced},
      {11, 17, {15}, kStepped},
      {11, 17, {15}, kNegative},
      {11, 17, {15}, kOffset, kOffset, kOffset},
      {11, 17, {5, 3}, kDense, kTransposed},
      {11, 17, {15}, kDense, kStepped},
      {11, 17, {5, 3}, kDense, kBroadcastFirst},
      {11, 17, {15}, kDense, kDense, kSliced},
      {11, 5, {1, 2, 1, 2, 1, 2, 3}, kOffset, kOffset, kOffset},  // The indices have the most axes.
      {0, 3, {0}},
      {11, 17, {5, 3}, kDense, kDense, kTransposed},
  };
  return rows;
}

std::string detail_of(const Row& row) {
  return "v" + std::to_string(row.rows) + "_d" + std::to_string(row.width) + "_i" +
         shape_text(row.indices);
}

std::string layout_of(const Row& row) {
  if (row.table == kDense && row.index == kDense && row.result == kDense) return "dense";
  return std::string(layout_text(row.table)) + "_" + layout_text(row.index) + "_to_" +
         layout_text(row.result);
}

Shape looked_up(const Row& row) {
  Shape shape = row.indices;
  shape.push_back(row.width);
  return shape;
}

std::vector<Expected> expected_embedding(const CallData& data, const Numerics&) {
  const bp_dtype dtype = data.tensor("weight").dtype;
  const auto expected = [&]<typename N>(N) {
    return judged_values(data,
                         {exactly(reference::embedding(
                             data.array<N>("weight"),
                             acting_indices(data, "indices", data.tensor("weight").shape[0])))});
  };
  return is_coded(dtype) ? expected(double()) : with_number(dtype, expected);
}

std::vector<Expected> expected_backward(const CallData& data, const Numerics& numerics) {
  const HostTensor& grad = data.tensor("grad_y");
  return with_float(grad.dtype, [&]<typename N>(N) {
    const Array<N> grad_y = data.array<N>("grad_y");
    const int64_t rows = data.integer("num_embeddings");
    const Array<int64_t> indices = acting_indices(data, "indices", rows);
    return judged_sum(data, reference::embedding_backward(grad_y, indices, rows),
                      reference::embedding_backward(absolute(grad_y), indices, rows),
                      static_cast<double>(indices.size()), numerics);
  });
}

void add_forward(OpCases& cases, bp_dtype dtype, bp_dtype index, bool is_smoke) {
  for (const Row& row : all_rows()) {
    // Four elements of each packed dtype are whole bytes.
    if (is_packed(dtype) && (row.width % 4 != 0 || layout_of(row) != "dense")) continue;
    const std::string suffix = index == BP_I64 ? "" : "_i32";
    OpCase made = make_case(BP_OP_EMBEDDING, dtype, is_packed(dtype) ? "all_bits" : "coord",
                            detail_of(row) + suffix, layout_of(row));
    made.input("weight", dtype, {row.rows, row.width}, is_packed(dtype) ? kAllBits : kCoord,
               row.table);
    made.input("indices", index, row.indices, index_fill(row.rows), row.index);
    made.output("y", dtype, looked_up(row), row.result).reference = expected_embedding;
    made.is_smoke = is_smoke;
    made.varies = row.rows > 1 && element_count(row.indices) > 1 && row.width > 1 &&
                  dtype != BP_BOOL && !is_packed(dtype);
    made.optional_part = moved_part(dtype);
    cases.push_back(std::move(made));
  }
}

void add_backward(OpCases& cases, bp_dtype dtype, bool is_exact, bool is_smoke) {
  for (const Row& row : all_rows()) {
    OpCase made = make_case(BP_OP_EMBEDDING_BACKWARD, dtype, is_exact ? "exact_dense" : "random",
                            detail_of(row), layout_of(row));
    made.input("grad_y", dtype, looked_up(row), is_exact ? kExactDense : kRandom, row.table);
    made.input("indices", BP_I64, row.indices, index_fill(row.rows), row.index);
    made.output("grad_weight", dtype, {row.rows, row.width}, row.result);
    made.set("num_embeddings", row.rows).reference = expected_backward;
    made.is_smoke = is_smoke;
    made.is_exact = is_exact;
    made.varies = false;  // Rows that no index names are zero.
    cases.push_back(std::move(made));
  }
}

// One index is out of range: the stream fails, and memory outside the tensors does not change.
void add_out_of_range(OpCases& cases) {
  for (const int64_t wrong : {int64_t{-1}, int64_t{11}, int64_t{1} << 40}) {
    const std::string detail = "v11_d5_i7_index" + std::to_string(wrong);
    const auto spoil = [wrong](CallData& data) {
      data.tensor("indices").data[3] = DoubleDouble::from_int64(wrong);
    };
    OpCase forward = make_case(BP_OP_EMBEDDING, BP_F32, "out_of_range", detail, "dense");
    forward.input("weight", BP_F32, {11, 5}, kCoord);
    forward.input("indices", BP_I64, {7}, index_fill(11)).output("y", BP_F32, {7, 5});
    OpCase backward = make_case(BP_OP_EMBEDDING_BACKWARD, BP_F32, "out_of_range", detail, "dense");
    backward.input("grad_y", BP_F32, {7, 5}, kCoord).input("indices", BP_I64, {7}, index_fill(11));
    backward.output("grad_weight", BP_F32, {11, 5}).set("num_embeddings", int64_t{11});
    for (OpCase* made : {&forward, &backward}) {
      made->derive = spoil;
      made->fails_on_device = true;
      cases.push_back(std::move(*made));
    }
  }
}

// Indices out of range that do not fail.
void add_bounds(OpCases& cases, OutOfRange rule, bp_dtype index) {
  const std::string detail = index == BP_I64 ? "v11_d37_i25" : "v11_d37_i25_i32";
  OpCase forward = make_case(BP_OP_EMBEDDING, BP_F32, "", detail, "dense");
  forward.input("weight", BP_F32, {11, 37}, kCoord);
  forward.input("indices", index, {25}, index_fill(11)).output("y", BP_F32, {25, 37});
  forward.reference = expected_embedding;
  OpCase backward = make_case(BP_OP_EMBEDDING_BACKWARD, BP_F32, "", detail, "dense");
  backward.input("grad_y", BP_F32, {25, 37}, kExactDense);
  backward.input("indices", index, {25}, index_fill(11));
  backward.output("grad_weight", BP_F32, {11, 37}).set("num_embeddings", int64_t{11});
  backward.reference = expected_backward;
  backward.is_exact = true;
  backward.varies = false;
  cases.push_back(with_bounds(std::move(forward), rule, "indices", 11));
  cases.push_back(with_bounds(std::move(backward), rule, "indices", 11));
}

}  // namespace

void add_embedding(OpCases& cases) {
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_I64}) add_forward(cases, dtype, BP_I64, true);
  for (const bp_dtype dtype :
       {BP_F16, BP_BF16, BP_I32, BP_BOOL, BP_U8, BP_I8, BP_I16, BP_U64, BP_F8E4M3FN, BP_F8E5M2}) {
    add_forward(cases, dtype, BP_I64, false);
  }
  for (const bp_dtype dtype : kPackedDtypes) add_forward(cases, dtype, BP_I64, false);
  for (const bp_dtype dtype : {BP_F32, BP_F64}) {
    add_backward(cases, dtype, true, true);
    add_backward(cases, dtype, false, true);
  }
  for (const bp_dtype dtype : {BP_F16, BP_BF16}) add_backward(cases, dtype, true, false);
  add_out_of_range(cases);
  for (const bp_dtype index : {BP_I64, BP_I32}) {
    add_bounds(cases, OutOfRange::kClamp, index);
    add_bounds(cases, OutOfRange::kUndefined, index);
  }
}

}  // namespace bp::conformance
