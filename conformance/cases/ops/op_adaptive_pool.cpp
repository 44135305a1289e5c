// Cases of adaptive_avg_pool and its gradient. Cases of layouts follow by rule.
#include <algorithm>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/pooling.hpp"

namespace bp::conformance {
namespace {

struct Row {
  Shape x, output_size;
  bool is_exact = false;  // All windows have the same power of two of elements, and do not overlap.
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1, 1, 4}, {2}, true},
      {{2, 3, 17}, {5}},
      {{1, 2, 5}, {7}},  // Windows overlap, and some have one element.
      {{1, 1, 1}, {3}},
      {{1, 2, 9}, {9}, true},
      {{2, 3, 8, 8}, {4, 2}, true},
      {{2, 17, 7, 7}, {1, 1}},
      {{1, 17, 7, 9}, {3, 4}},
      {{1, 2, 3, 70}, {2, 33}},
      {{1, 1, 300, 3}, {1, 2}},
      {{1, 2, 4, 5, 6}, {2, 3, 4}},
      {{2, 2, 4, 2, 8}, {2, 2, 1}, true},
      {{0, 2, 4, 4}, {2, 2}},
      {{1, 0, 4, 4}, {2, 2}},
      {{1, 2, 0, 4}, {2, 2}},  // The windows have no elements.
      {{1, 2, 4, 4}, {0, 3}},
  };
  return rows;
}

Shape pooled_shape(const Row& row) {
  Shape y(row.x.begin(), row.x.begin() + 2);
  y.insert(y.end(), row.output_size.begin(), row.output_size.end());
  return y;
}

// Returns a number of terms that no sum exceeds: those of `from` in a window of `to`, with a part
// of an element at either end.
double most_terms(std::span<const int64_t> from, std::span<const int64_t> to) {
  double most = 1;
  for (size_t i = 0; i < from.size(); ++i) {
    most *= static_cast<double>(std::min(from[i], from[i] / std::max<int64_t>(to[i], 1) + 2));
  }
  return std::fmax(most, 1);
}

std::vector<Expected> expected_forward(const CallData& data, const Numerics& numerics) {
  const Shape& size = data.list("output_size");
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    return judged_sum(data, reference::adaptive_avg_pool(x, size),
                      reference::adaptive_avg_pool(absolute(x), size),
                      most_terms(std::span(x.shape).subspan(2), size), numerics);
  });
}

std::vector<Expected> expected_backward(const CallData& data, const Numerics& numerics) {
  const Shape& size = data.list("input_size");
  return with_float(data.tensor("grad_y").dtype, [&]<typename N>(N) {
    const Array<N> grad = data.array<N>("grad_y");
    const Array<N> sums = reference::adaptive_avg_pool_backward(grad, size);
    const Array<N> magnitudes = reference::adaptive_avg_pool_backward(absolute(grad), size);
    const double count = most_terms(std::span(grad.shape).subspan(2), size);
    Known known = summed(sums, magnitudes, count, numerics);
    known.is_one_sided = true;  // The elements of a window are equal, and round alike.
    return judged(data, std::move(known));
  });
}

void add_row(OpCases& cases, const Row& row, bp_dtype dtype, bool is_exact) {
  const std::string detail = shape_text(row.x) + "_to" + shape_text(row.output_size);
  const std::string fill = is_exact ? "exact_dense" : "random";
  const Fill data = is_exact ? kExactDense : kRandom;
  OpCase forward = make_case(BP_OP_ADAPTIVE_AVG_POOL, dtype, fill, detail, "dense");
  forward.input("x", dtype, row.x, data).output("y", dtype, pooled_shape(row));
  forward.set("output_size", row.output_size).reference = expected_forward;
  OpCase backward = make_case(BP_OP_ADAPTIVE_AVG_POOL_BACKWARD, dtype, fill, detail, "dense");
  backward.input("grad_y", dtype, pooled_shape(row), data).output("grad_x", dtype, row.x);
  backward.set("input_size", Shape(row.x.begin() + 2, row.x.end()));
  backward.reference = expected_backward;
  for (OpCase* made : {&forward, &backward}) {
    made->is_exact = is_exact;
    made->is_smoke = is_smoke_dtype(dtype);
    made->varies = false;  // The elements of a window have one gradient.
    cases.push_back(std::move(*made));
  }
}

// The sum of a window overflows f16, and its mean does not.
void add_overflowing(OpCases& cases) {
  OpCases rows;
  for (const Row& row : all_rows()) add_row(rows, row, BP_F16, false);
  for (OpCase& row : rows) {
    if (row.op != BP_OP_ADAPTIVE_AVG_POOL) continue;
    row.fill = "overflows";
    row.tensors.front().fill = {FillKind::kUniform, 30'000, 40'000};
    cases.push_back(std::move(row));
  }
}

}  // namespace

void add_adaptive_pool(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    for (const Row& row : all_rows()) {
      add_row(cases, row, dtype, false);
      if (row.is_exact) add_row(cases, row, dtype, true);
    }
  }
  add_overflowing(cases);
}

}  // namespace bp::conformance
