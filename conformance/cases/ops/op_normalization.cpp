// Cases of softmax and log_softmax and of their gradients.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
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

template <typename N>
double as_double(const N& value) {
  return exact_of(value).hi;
}

// One oracle and one bound for each line along the axis.
template <typename Oracle, typename Bounds>
std::vector<Expected> per_line(const CallData& data, Oracle oracle, Bounds bounds) {
  const HostTensor& tensor = data.tensor("x");
  const AxisView view(tensor.shape, static_cast<size_t>(data.integer("axis")));
  return with_float(tensor.dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    Array<N> y(x.shape);
    std::vector<double> bound(x.data.size());
    if (view.extent == 0) return std::vector{exactly(y)};
    for_each_line(view, [&](int64_t outer, int64_t inner) {
      std::vector<N> line;
      std::vector<double> plain, result;
      for (int64_t i = 0; i < view.extent; ++i) {
        line.push_back(x[view.at(outer, i, inner)]);
        plain.push_back(as_double(line.back()));
      }
      const std::vector<N> exact = oracle(std::span<const N>(line));
      for (const N& value : exact) result.push_back(as_double(value));
      const std::vector<double> line_bounds = bounds(plain, result, tensor.dtype);
      for (int64_t i = 0; i < view.extent; ++i) {
        const auto at = static_cast<size_t>(i);
        y[view.at(outer, i, inner)] = exact[at];
        bound[static_cast<size_t>(view.at(outer, i, inner))] = line_bounds[at];
      }
    });
    Expected expected = exactly(y);
    expected.bound = std::move(bound);
    return std::vector{expected};
  });
}

std::vector<Expected> expected_softmax(const CallData& data, const Numerics&) {
  return per_line(
      data, []<typename N>(std::span<const N> line) { return reference::softmax(line); },
      softmax_bounds);
}

std::vector<Expected> expected_log_softmax(const CallData& data, const Numerics&) {
  return per_line(
      data, []<typename N>(std::span<const N> line) { return reference::log_softmax(line); },
      log_softmax_bounds);
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
    made.varies = false;  // One class has the probability 1, and far ones underflow.
    cases.push_back(std::move(made));
  }
}

// ---- Backward -------------------------------------------------------------------------------- //

// `oracle` takes a line of grad_y and of y.
template <typename Oracle>
std::vector<Expected> gradient_per_line(const CallData& data, Oracle oracle) {
  const HostTensor& tensor = data.tensor("y");
  const AxisView view(tensor.shape, static_cast<size_t>(data.integer("axis")));
  return propagated(tensor.dtype, [&]<typename N>(N) {
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

// Replaces y, which the fill made an argument of the forward op, by its result.
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
    if (row.x != kDense || row.y != kDense) continue;  // Layouts come by rule.
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
      // Where exp overflows and underflows without the subtraction of the maximum.
      add_rows(cases, op, dtype, "range", {FillKind::kUniform, -120, 120}, is_smoke);
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
