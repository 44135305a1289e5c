// Cases of var. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/variance.hpp"

namespace bp::conformance {
namespace {

struct Row {
  Shape x, axes;
  int64_t correction = 1;
  bool keepdims = false;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}, {0}, 0},
      {{}, {}},  // One element and a correction of 1: 0 / 0.
      {{1}, {0}},
      {{2}, {0}, 3},
      {{7}, {0}},
      {{67}, {0}, 0},
      {{1031}, {0}, 5},
      {{5, 7}, {0}},
      {{5, 7}, {1}, 0, true},
      {{5, 7}, {}, 0},
      {{9, 300}, {0, 1}},
      {{300, 9}, {1}, 2},
      {{3, 4, 5}, {1}},
      {{3, 4, 5}, {0, 2}, 1, true},
      {{2, 3, 4, 5}, {3, 1}},
      {{2, 1, 2, 1, 2, 1, 2, 3}, {0, 6, 7}},
      {{3, 0}, {0}},
      {{3, 0}, {1}, 0},
  };
  return rows;
}

std::vector<Expected> expected_var(const CallData& data, const Numerics&) {
  const bp_dtype dtype = data.tensor("x").dtype;
  const Shape& axes = data.list("axes");
  const int64_t correction = data.integer("correction");
  return with_float(dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    Known known{{exactly(reference::variance(x, axes, data.integer("keepdims") != 0, correction))}};
    known.formula = [&](BoundRule) {
      return Bounds{reference::variance_bounds(x, axes, correction, dtype)};
    };
    return judged(data, std::move(known));
  });
}

void add_rows(OpCases& cases, bp_dtype dtype, const std::string& fill, const Fill& data) {
  for (const Row& row : all_rows()) {
    std::string detail = shape_text(row.x) + "_axes";
    for (const int64_t axis : row.axes) detail += std::to_string(axis);
    if (row.axes.empty()) detail += "none";
    detail += "_minus" + std::to_string(row.correction) + (row.keepdims ? "_keep" : "");
    OpCase made = make_case(BP_OP_VAR, dtype, fill, detail, "dense");
    made.input("x", dtype, row.x, data);
    made.output("y", dtype, reference::reduced(row.x, row.axes, row.keepdims));
    made.set("axes", row.axes).set("keepdims", int64_t{row.keepdims});
    made.set("correction", row.correction).reference = expected_var;
    made.is_smoke = is_smoke_dtype(dtype);
    made.varies = false;  // A variance may be one number, or no number.
    cases.push_back(std::move(made));
  }
}

}  // namespace

void add_variance(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    add_rows(cases, dtype, "random", kRandom);
    // The mean is large beside the distances from it.
    add_rows(cases, dtype, "far", {FillKind::kUniform, 100, 102});
  }
}

}  // namespace bp::conformance
