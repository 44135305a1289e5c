// Cases of sum, mean, amax and argmax.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/reference/reduction.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

struct Row {
  Shape shape;
  Shape axes;
  bool keepdims = false;
  Layout x = kDense;
  Layout y = kDense;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}, {}},
      {{1}, {0}},
      {{7}, {0}},
      {{8}, {0}},
      {{17}, {0}, true},
      {{67}, {0}},
      {{1031}, {0}},
      {{5, 7}, {0}},
      {{5, 7}, {1}},
      {{5, 7}, {0, 1}},
      {{5, 7}, {}},
      {{5, 7}, {1}, true},
      {{300, 9}, {1}},
      {{9, 300}, {0}},
      {{3, 4, 5}, {1}},
      {{3, 4, 5}, {0, 2}, true},
      {{3, 4, 5}, {2, 0}},
      {{2, 3, 4, 5}, {1, 2}},
      {{2, 3, 4, 5}, {0, 2, 3}},
      {{2, 3, 2, 3, 2}, {1, 3}},
      {{2, 1, 2, 1, 2, 1, 2, 3}, {0, 6}},
      {{2, 1, 2, 1, 2, 3, 2, 1}, {5}, false, kOffset, kOffset},
      {{65, 33}, {0}},
      {{65, 33}, {1}},
      {{5, 7}, {1}, false, kTransposed},
      {{5, 7}, {0}, false, kTransposed},
      {{3, 4, 5}, {1}, false, kPermuted},
      {{5, 19}, {1}, false, kSliced},
      {{5, 19}, {0}, false, kSliced},
      {{19}, {0}, false, kStepped},
      {{5, 19}, {1}, false, kStepped},
      {{5, 19}, {1}, false, kNegative},
      {{5, 19}, {1}, false, kOffset, kOffset},
      {{5, 19}, {0}, false, kBroadcastFirst},
      {{5, 19}, {0}, false, kBroadcastLast},
      {{5, 19}, {1}, false, kBroadcastLast},
      {{4, 5, 7}, {1}, false, kDense, kSliced},
      {{4, 5, 7}, {0}, false, kDense, kTransposed},
      {{2, 3, 2, 3, 2}, {2, 4}, false, kTransposed, kStepped},
  };
  return rows;
}

// Zero-size rows, for the ops that have an identity.
const std::vector<Row>& empty_rows() {
  static const std::vector<Row> rows = {
      {{0}, {0}}, {{3, 0}, {1}}, {{3, 0}, {0}}, {{3, 0, 2}, {1}, true}};
  return rows;
}

std::string detail_of(const Row& row) {
  std::string text = shape_text(row.shape) + "_axes";
  for (const int64_t axis : row.axes) text += std::to_string(axis);
  if (row.axes.empty()) text += "none";
  return text + (row.keepdims ? "_keep" : "");
}

std::string layout_of(const Row& row) {
  if (row.y == kDense) return layout_text(row.x);
  return std::string(layout_text(row.x)) + "_to_" + layout_text(row.y);
}

double terms_of(const CallData& data) {
  const double outputs = static_cast<double>(element_count(data.tensor("y").shape));
  return static_cast<double>(data.tensor("x").data.size()) / std::fmax(outputs, 1);
}

// Without axes the result is x, and no zero changes its sign.
Expected expected_of(const CallData& data, Expected sums) {
  sums.sign_of_zero = data.list("axes").empty();
  return sums;
}

std::vector<Expected> expected_sum(const CallData& data, const Numerics& numerics) {
  const bool keepdims = data.integer("keepdims") != 0;
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const Array<N> y = reference::sum(x, data.list("axes"), keepdims);
    if constexpr (std::is_same_v<N, Integer>) {
      return std::vector{exactly(y)};
    } else {
      const Array<N> magnitude = reference::sum(absolute(x), data.list("axes"), keepdims);
      return std::vector{expected_of(data, summed(y, magnitude, terms_of(data), numerics))};
    }
  });
}

std::vector<Expected> expected_mean(const CallData& data, const Numerics& numerics) {
  const bool keepdims = data.integer("keepdims") != 0;
  return with_float(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const Array<N> y = reference::mean(x, data.list("axes"), keepdims);
    const Array<N> magnitude = reference::mean(absolute(x), data.list("axes"), keepdims);
    // One step more than the sum: the division.
    return std::vector{expected_of(data, summed(y, magnitude, terms_of(data) + 1, numerics))};
  });
}

std::vector<Expected> expected_amax(const CallData& data, const Numerics&) {
  const bool keepdims = data.integer("keepdims") != 0;
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    return std::vector{exactly(reference::amax(data.array<N>("x"), data.list("axes"), keepdims))};
  });
}

std::vector<Expected> expected_argmax(const CallData& data, const Numerics& numerics) {
  const int64_t axis = data.integer("axis");
  const bool keepdims = data.integer("keepdims") != 0;
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const Array<int64_t> best = reference::argmax(x, axis, keepdims);
    Expected expected = exactly(best);
    if (!numerics.any_tie) return std::vector{expected};
    expected.also_right = [x, best, axis](int64_t element, DoubleDouble y) {
      const AxisView view(x.shape, static_cast<size_t>(axis));
      const int64_t i = to_int64(y), outer = element / view.inner_size;
      const int64_t inner = element % view.inner_size;
      if (i < 0 || i >= view.extent) return false;
      const N chosen = x[view.at(outer, i, inner)];
      const N largest = x[view.at(outer, best[element], inner)];
      return !reference::is_larger(largest, chosen);
    };
    return std::vector{expected};
  });
}

struct ReductionOp {
  uint32_t op;
  Reference reference;
};

OpCase make_row(const ReductionOp& op, bp_dtype dtype, bp_dtype result, const std::string& fill,
                const Fill& data, const Row& row) {
  OpCase made = make_case(op.op, dtype, fill, detail_of(row), layout_of(row));
  made.input("x", dtype, row.shape, data, row.x);
  made.output("y", result, reference::reduced(row.shape, row.axes, row.keepdims), row.y);
  made.set("keepdims", int64_t{row.keepdims}).reference = op.reference;
  if (op.op == BP_OP_ARGMAX) {
    made.set("axis", row.axes.front());
  } else {
    made.set("axes", row.axes);
  }
  made.varies = false;  // A reduction may have one output, or equal ones.
  return made;
}

bool can_take(const ReductionOp& op, const Row& row) {
  return op.op != BP_OP_ARGMAX || row.axes.size() == 1;
}

void add_rows(OpCases& cases, const ReductionOp& op, bp_dtype dtype, bool is_smoke) {
  const bool is_sum = op.op == BP_OP_SUM || op.op == BP_OP_MEAN;
  bp_dtype result = dtype;
  if (op.op == BP_OP_ARGMAX || (is_sum && !is_float(dtype))) result = BP_I64;
  const auto add = [&](const std::string& fill, const Fill& data, const Row& row) {
    OpCase made = make_row(op, dtype, result, fill, data, row);
    made.is_smoke = is_smoke;
    made.is_exact = row.axes.empty() || (op.op == BP_OP_SUM && fill == "exact_dense");
    cases.push_back(std::move(made));
  };
  for (const Row& row : all_rows()) {
    if (!can_take(op, row)) continue;
    add("exact_dense", kExactDense, row);
    if (is_sum && is_float(dtype)) add("random", kRandom, row);
    if (!is_sum && dtype != BP_I64) add("repeat", kRepeat, row);  // Tied extremes.
  }
  const auto specials = static_cast<int64_t>(special_values(dtype).size());
  if (is_sum) {
    for (const Row& row : empty_rows()) add("tail", kExactDense, row);
    if (!is_float(dtype)) return;
    add("positive", kPositive, {{5, 1031}, {1}});
    add("special", kSpecial, {{3, specials}, {}});
    add("special", kSpecial, {{specials, 3}, {}, true, kTransposed});
    return;
  }
  add("special", kSpecial, {{specials, 3}, {1}});
  add("special", kSpecialSlow, {{specials, specials}, {1}});
  add("tail", kExactDense, {{3, 0}, {0}, false, kDense, kDense});
}

}  // namespace

void add_reduction(OpCases& cases) {
  const ReductionOp sum{BP_OP_SUM, expected_sum}, mean{BP_OP_MEAN, expected_mean};
  const ReductionOp amax{BP_OP_AMAX, expected_amax}, argmax{BP_OP_ARGMAX, expected_argmax};
  for (const ReductionOp* op : {&sum, &mean, &amax, &argmax}) {
    for (const bp_dtype dtype : {BP_F32, BP_F64}) add_rows(cases, *op, dtype, true);
    for (const bp_dtype dtype : {BP_F16, BP_BF16}) add_rows(cases, *op, dtype, false);
    if (op == &mean) continue;
    for (const bp_dtype dtype : {BP_I32, BP_I64}) add_rows(cases, *op, dtype, dtype == BP_I64);
  }
  add_rows(cases, sum, BP_BOOL, true);
}

}  // namespace bp::conformance
