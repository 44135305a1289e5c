// Cases of norm. Cases of layouts follow by rule.
#include <cmath>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/vector_norm.hpp"

namespace bp::conformance {
namespace {

struct Row {
  Shape x, axes;
  bool keepdims = false;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}, {0}},
      {{}, {}},
      {{1}, {0}},
      {{7}, {0}},
      {{1031}, {0}},
      {{5, 7}, {0}},
      {{5, 7}, {1}, true},
      {{5, 7}, {}},
      {{9, 300}, {0, 1}},
      {{3, 4, 5}, {0, 2}, true},
      {{2, 3, 4, 5}, {3, 1}},
      {{3, 0}, {0}},
  };
  return rows;
}

constexpr double kOrders[] = {0, 1, 2, HUGE_VAL, -HUGE_VAL, 0.5, 3, -1.5};

std::string order_text(double p) {
  if (std::isinf(p)) return p > 0 ? "inf" : "minus_inf";
  const std::string text = std::to_string(std::abs(p)).substr(0, 3);
  return (p < 0 ? "minus_" : "") + (std::floor(p) == p ? text.substr(0, 1) : text);
}

std::vector<Expected> expected_norm(const CallData& data, const Numerics&) {
  const double p = data.number("p");
  const auto run = [&]<typename N>(N) {
    return std::vector{
        reference::norm(data.array<N>("x"), data.list("axes"), p, data.integer("keepdims") != 0)};
  };
  Known known = steps(data.tensor("x").dtype, run);
  return judged(data, std::move(known));
}

OpCase& add(OpCases& cases, const Row& row, bp_dtype dtype, double p, const std::string& fill,
            const Fill& data) {
  std::string detail = shape_text(row.x) + "_axes";
  for (const int64_t axis : row.axes) detail += std::to_string(axis);
  if (row.axes.empty()) detail += "none";
  detail += "_p" + order_text(p) + (row.keepdims ? "_keep" : "");
  OpCase made = make_case(BP_OP_NORM, dtype, fill, detail, "dense");
  made.input("x", dtype, row.x, data);
  made.output("y", dtype, reference::reduced(row.x, row.axes, row.keepdims));
  made.set("axes", row.axes).set("keepdims", int64_t{row.keepdims}).set("p", p);
  made.reference = expected_norm;
  const bool is_usual = p == 1 || p == 2 || std::isinf(p);
  made.is_smoke =
      dtype == BP_F32 && (p == 2 || fill == "random" || (is_usual && fill != "special"));
  made.varies = false;
  cases.push_back(std::move(made));
  return cases.back();
}

// An exponent of 2 whose square lies beyond the numbers of acc(x).
double far_exponent(bp_dtype dtype) { return dtype == BP_F64 ? 1'000 : dtype == BP_F16 ? 12 : 120; }

// Each row has a value in another place, and the other elements are numbers.
void put_in_each_row(CallData& data, double value) {
  HostTensor& x = data.tensor("x");
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    x.data[static_cast<size_t>(i * x.shape[1] + i % x.shape[1])] = DoubleDouble(value);
  }
}

void add_values(OpCases& cases, bp_dtype dtype, double p) {
  const Row rows{{11, 5}, {1}};
  const double far = far_exponent(dtype);
  add(cases, rows, dtype, p, "huge", {FillKind::kLogUniform, far, far + 1});
  add(cases, rows, dtype, p, "tiny", {FillKind::kLogUniform, -far - 1, -far});
  for (const double value : {0.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    const std::string fill = value == 0 ? "zeros" : std::isnan(value) ? "nan" : "infinite";
    OpCase& made = add(cases, rows, dtype, p, fill, kPositive);
    made.derive = [value](CallData& data) { put_in_each_row(data, value); };
    if (value < 0) made.detail += "_minus";
  }
  const auto specials = static_cast<int64_t>(special_values(dtype).size());
  add(cases, {{specials, 1}, {1}}, dtype, p, "special", kSpecial);
}

}  // namespace

void add_vector_norm(OpCases& cases) {
  for (const bp_dtype dtype : kFloats) {
    for (const double p : kOrders) {
      for (const Row& row : all_rows()) {
        const bool is_plain = row.x == Shape{5, 7} || row.x.empty();
        if (is_plain || p == 2) add(cases, row, dtype, p, "random", kRandom);
      }
      if (p >= 0) add(cases, {{3, 0}, {1}}, dtype, p, "random", kRandom);
      add_values(cases, dtype, p);
    }
  }
}

}  // namespace bp::conformance
