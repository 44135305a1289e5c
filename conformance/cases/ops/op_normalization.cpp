// Cases of softmax and log_softmax and of their gradients.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/relaxed_row.hpp"
#include "conformance/reference/normalization.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

struct Row {
  Shape shape;
  int64_t axis;
  Layout x = kDense;
  Layout y = kDense;
  bool is_in_place = false;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}, 0},
      {{1}, 0},
      {{7}, 0},
      {{17}, 0},
      {{5, 1}, 1},
      {{3, 8}, 1},
      {{5, 10}, 1},
      {{4, 67}, 1},
      {{3, 1031}, 1},
      {{67, 5}, 0},
      {{3, 4, 5}, 1},
      {{3, 4, 5}, 0},
      {{2, 3, 4, 5}, 1},
      {{2, 3, 4, 5}, 3},
      {{0, 5}, 1},
      {{5, 0}, 1},
      {{5, 17}, 1, kTransposed},
      {{5, 17}, 1, kSliced, kSliced},
      {{5, 17}, 1, kStepped},
      {{5, 17}, 1, kNegative},
      {{5, 17}, 1, kOffset, kOffset},
      {{2, 1, 2, 1, 2, 1, 2, 9}, 7, kOffset, kOffset},
      {{2, 1, 2, 3, 2, 1, 2, 2}, 3, kSliced, kSliced},
      {{5, 17}, 1, kBroadcastFirst},
      {{5, 17}, 0, kTransposed, kTransposed},
      {{5, 17}, 0, kSliced},
      {{3, 4, 5}, 1, kPermuted, kTransposed},
      {{5, 17}, 1, kDense, kTransposed},
      {{5, 17}, 1, kDense, kDense, true},
      {{5, 17}, 0, kSliced, kSliced, true},
  };
  return rows;
}

std::string layout_of(const Row& row) {
  if (row.is_in_place) return std::string("inplace_") + layout_text(row.x);
  if (row.y == kDense) return layout_text(row.x);
  return std::string(layout_text(row.x)) + "_to_" + layout_text(row.y);
}

// Calls visit(indices) for each line along the axis, with the places of its elements.
template <typename Visit>
void for_each_place(const AxisView& view, Visit visit) {
  std::vector<size_t> places(static_cast<size_t>(view.extent));
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    for (size_t i = 0; i < places.size(); ++i) {
      places[i] = static_cast<size_t>(view.at(outer, static_cast<int64_t>(i), inner));
    }
    if (!places.empty()) visit(std::span<const size_t>(places));
  });
}

// The bounds of each line by the formula of the class, from its arguments and exact results.
Bounds line_bounds(const AxisView& view, const HostTensor& x, const Expected& y, BoundRule rule,
                   const Numerics& numerics) {
  if (rule != BoundRule::kSoftmax && rule != BoundRule::kLogSoftmax) return {};
  const auto formula = rule == BoundRule::kSoftmax ? softmax_bounds : log_softmax_bounds;
  Bounds bounds{std::vector<double>(x.data.size())};
  for_each_place(view, [&](std::span<const size_t> places) {
    std::vector<double> line, result;
    for (const size_t at : places) {
      line.push_back(x.data[at].hi);
      result.push_back(y.value[at].hi);
    }
    const std::vector<double> own = formula(line, result, x.dtype);
    const RelaxedRow more = relaxed_row(line, x.dtype, numerics);
    for (size_t i = 0; i < places.size(); ++i) {
      const bool is_log = rule == BoundRule::kLogSoftmax;
      bounds[0][places[i]] = own[i] + (is_log ? more.log : result[i] * more.relative[i]);
    }
  });
  return bounds;
}

// `oracle` takes a line along the axis.
template <typename Oracle>
std::vector<Expected> per_line(const CallData& data, const Numerics& numerics, Oracle oracle) {
  const HostTensor& tensor = data.tensor("x");
  const AxisView view(tensor.shape, static_cast<size_t>(data.integer("axis")));
  const auto run = [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    Array<N> y(x.shape);
    for_each_place(view, [&](std::span<const size_t> places) {
      std::vector<N> line;
      for (const size_t at : places) line.push_back(x.data[at]);
      const std::vector<N> result = oracle(std::span<const N>(line));
      for (size_t i = 0; i < places.size(); ++i) y.data[places[i]] = result[i];
    });
    return std::vector{y};
  };
  Known known = steps(tensor.dtype, run);
  const Expected exact = known.outputs[0];
  known.formula = [&](BoundRule rule) { return line_bounds(view, tensor, exact, rule, numerics); };
  return judged(data, std::move(known));
}

std::vector<Expected> expected_softmax(const CallData& data, const Numerics& numerics) {
  return per_line(data, numerics,
                  []<typename N>(std::span<const N> line) { return reference::softmax(line); });
}

std::vector<Expected> expected_log_softmax(const CallData& data, const Numerics& numerics) {
  return per_line(data, numerics,
                  []<typename N>(std::span<const N> line) { return reference::log_softmax(line); });
}

void add_rows(OpCases& cases, uint32_t op, bp_dtype dtype, const std::string& fill,
              const Fill& data, bool is_smoke) {
  for (const Row& row : all_rows()) {
    OpCase made =
        make_case(op, dtype, fill, shape_text(row.shape) + "_axis" + std::to_string(row.axis),
                  layout_of(row));
    made.input("x", dtype, row.shape, data, row.x).output("y", dtype, row.shape, row.y);
    if (row.is_in_place) made.tensors.back().alias = "x";
    made.set("axis", row.axis);
    made.reference = op == BP_OP_SOFTMAX ? expected_softmax : expected_log_softmax;
    made.is_smoke = is_smoke;
    made.varies = false;  // One class has the probability 1, and the far ones underflow.
    cases.push_back(std::move(made));
  }
}

// Makes the first row -inf, all of the second row but one element, and every other element of the
// rest, as masks do.
void mask_rows(CallData& data) {
  HostTensor& x = data.tensor("x");
  const auto width = static_cast<size_t>(x.shape[1]);
  for (size_t i = 0; i < x.data.size(); ++i) {
    const size_t row = i / width, column = i % width;
    const bool is_seen = row == 1 ? column == width / 2 : row > 1 && column % 2 == 0;
    if (!is_seen) x.data[i] = -HUGE_VAL;
  }
}

// Puts one NaN into each row of a square: each place of a row has it once.
void put_nan_in_each_lane(CallData& data) {
  HostTensor& x = data.tensor("x");
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    x.data[static_cast<size_t>(i * x.shape[1] + i)] = std::nan("");
  }
}

void add_special_rows(OpCases& cases, uint32_t op, bp_dtype dtype, bool is_smoke) {
  const auto add = [&](const char* fill, const Shape& shape, int64_t axis,
                       void (*derive)(CallData&)) {
    OpCase made =
        make_case(op, dtype, fill, shape_text(shape) + "_axis" + std::to_string(axis), "dense");
    made.input("x", dtype, shape, {FillKind::kUniform, -4, 4}).output("y", dtype, shape);
    made.set("axis", axis).derive = derive;
    made.reference = op == BP_OP_SOFTMAX ? expected_softmax : expected_log_softmax;
    made.is_smoke = is_smoke;
    made.varies = false;
    cases.push_back(std::move(made));
  };
  for (const int64_t width : {8, 67, 1031}) add("masked", {5, width}, 1, mask_rows);
  add("nan_lanes", {67, 67}, 1, put_nan_in_each_lane);
  add("nan_lanes", {67, 67}, 0, put_nan_in_each_lane);
}

// ---- Backward -------------------------------------------------------------------------------- //

// `oracle` takes a line of grad_y and of y.
template <typename Oracle>
std::vector<Expected> gradient_per_line(const CallData& data, Oracle oracle) {
  const HostTensor& tensor = data.tensor("y");
  const AxisView view(tensor.shape, static_cast<size_t>(data.integer("axis")));
  return judged_steps(data, tensor.dtype, [&]<typename N>(N) {
    const Array<N> grad_y = data.array<N>("grad_y"), y = data.array<N>("y");
    Array<N> grad_x(y.shape);
    for_each_line(view, [&](int64_t outer, int64_t inner) {
      std::vector<N> grads, results;
      for (int64_t i = 0; i < view.extent; ++i) {
        grads.push_back(grad_y[view.at(outer, i, inner)]);
        results.push_back(y[view.at(outer, i, inner)]);
      }
      const std::vector<N> line = oracle(std::span<const N>(grads), std::span<const N>(results));
      for (int64_t i = 0; i < view.extent; ++i) {
        grad_x[view.at(outer, i, inner)] = line[static_cast<size_t>(i)];
      }
    });
    return std::vector{grad_x};
  });
}

std::vector<Expected> expected_softmax_backward(const CallData& data, const Numerics&) {
  return gradient_per_line(data, []<typename N>(std::span<const N> grad_y, std::span<const N> y) {
    return reference::softmax_backward(grad_y, y);
  });
}

std::vector<Expected> expected_log_softmax_backward(const CallData& data, const Numerics&) {
  return gradient_per_line(data, []<typename N>(std::span<const N> grad_y, std::span<const N> y) {
    return reference::log_softmax_backward(grad_y, y);
  });
}

// Replaces y, which the fill made an argument of the forward op, by the result of that op.
template <typename Forward>
void derive_result(CallData& data, Forward forward) {
  HostTensor& y = data.tensor("y");
  const AxisView view(y.shape, static_cast<size_t>(data.integer("axis")));
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    std::vector<double> line;
    const auto at = [&](int64_t i) { return static_cast<size_t>(view.at(outer, i, inner)); };
    for (int64_t i = 0; i < view.extent; ++i) line.push_back(y.data[at(i)].hi);
    if (line.empty()) return;
    const std::vector<double> result = forward(std::span<const double>(line));
    for (int64_t i = 0; i < view.extent; ++i) {
      y.data[at(i)] = round_to(y.dtype, result[static_cast<size_t>(i)]);
    }
  });
}

void derive_softmax(CallData& data) {
  derive_result(data, [](std::span<const double> line) { return reference::softmax(line); });
}
void derive_log_softmax(CallData& data) {
  derive_result(data, [](std::span<const double> line) { return reference::log_softmax(line); });
}

void add_backward_rows(OpCases& cases, uint32_t op, bp_dtype dtype, const std::string& fill,
                       const Fill& data) {
  const bool is_softmax = op == BP_OP_SOFTMAX_BACKWARD;
  for (const Row& row : all_rows()) {
    if (row.x != kDense || row.y != kDense) continue;  // Cases of layouts follow by rule.
    const std::string detail = shape_text(row.shape) + "_axis" + std::to_string(row.axis);
    for (const char* alias : {"", "grad_y", "y"}) {
      if (row.is_in_place == (*alias == '\0')) continue;
      OpCase made = make_case(op, dtype, fill, detail,
                              *alias == '\0' ? "dense" : std::string("inplace_") + alias);
      made.input("grad_y", dtype, row.shape, kRandom).input("y", dtype, row.shape, data);
      made.output("grad_x", dtype, row.shape).tensors.back().alias = alias;
      made.set("axis", row.axis);
      made.derive = is_softmax ? derive_softmax : derive_log_softmax;
      made.reference = is_softmax ? expected_softmax_backward : expected_log_softmax_backward;
      made.is_smoke = is_smoke_dtype(dtype);
      made.varies = false;
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace

void add_normalization(OpCases& cases) {
  for (const uint32_t op : {uint32_t{BP_OP_SOFTMAX}, uint32_t{BP_OP_LOG_SOFTMAX}}) {
    for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
      const bool is_smoke = dtype == BP_F32 || dtype == BP_F64;
      add_rows(cases, op, dtype, "random", {FillKind::kUniform, -4, 4}, is_smoke);
      // The range is one where exp overflows and underflows if the maximum is not subtracted.
      add_rows(cases, op, dtype, "range", {FillKind::kUniform, -120, 120}, is_smoke);
      add_special_rows(cases, op, dtype, is_smoke);
    }
  }
  for (const uint32_t op :
       {uint32_t{BP_OP_SOFTMAX_BACKWARD}, uint32_t{BP_OP_LOG_SOFTMAX_BACKWARD}}) {
    for (const bp_dtype dtype : kFloats) {
      add_backward_rows(cases, op, dtype, "random", {FillKind::kUniform, -4, 4});
      add_backward_rows(cases, op, dtype, "range", {FillKind::kUniform, -120, 120});
    }
  }
}

}  // namespace bp::conformance
