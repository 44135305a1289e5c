// Cases of cummax, cummin and logcumsumexp. Cases of layouts follow by rule.
#include <cmath>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/scan.hpp"

namespace bp::conformance {
namespace {

struct Row {
  Shape x;
  int64_t axis;
};

// Lines are shorter and longer than the blocks in which kernels scan them.
const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}, 0},        {{1}, 0},          {{2}, 0},
      {{17}, 0},      {{1031}, 0},       {{0}, 0},
      {{5, 7}, 0},    {{5, 7}, 1},       {{3, 257}, 1},
      {{257, 3}, 0},  {{65, 33}, 0},     {{2, 4'099}, 1},
      {{3, 4, 5}, 1}, {{2, 3, 9, 5}, 2}, {{3, 0}, 1},
      {{3, 0}, 0},    {{0, 5}, 1},       {{2, 1, 2, 1, 3, 1, 2, 3}, 4},
  };
  return rows;
}

// Puts `value` into each row of a square, and into each column: each place of a line has it once.
void put_in_each_line(CallData& data, double value) {
  HostTensor& x = data.tensor("x");
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    x.data[static_cast<size_t>(i * x.shape[1] + (i * 29) % x.shape[1])] = DoubleDouble(value);
  }
}

std::string detail_of(const Row& row) {
  return shape_text(row.x) + "_axis" + std::to_string(row.axis);
}

// ---- cummax and cummin ----------------------------------------------------------------------- //

std::vector<Expected> expected_extreme(const CallData& data, const Numerics&) {
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const auto axis = static_cast<size_t>(data.integer("axis"));
    const auto found = data.op() == BP_OP_CUMMAX
                           ? reference::running_extremes(x, axis, reference::is_larger<N>)
                           : reference::running_extremes(x, axis, reference::is_smaller<N>);
    std::vector<Expected> expected = {exactly(found.values)};
    if (data.has("indices")) expected.push_back(exactly(found.indices));
    return judged_values(data, std::move(expected));
  });
}

// Makes the lines rise and fall, so that most places have an extreme of their own.
void make_waves(CallData& data) {
  HostTensor& x = data.tensor("x");
  for (size_t i = 0; i < x.data.size(); ++i) {
    const auto slope = static_cast<double>(i % 101);
    x.data[i] = DoubleDouble(i % 2 == 0 ? slope : -slope);
  }
}

enum class Wanted { kValues, kI32, kI64 };  // The indices that a call asks for.

OpCase& add_extreme(OpCases& cases, uint32_t op, const Row& row, bp_dtype dtype,
                    const std::string& fill, const Fill& numbers, Wanted wanted) {
  const char* const suffix = wanted == Wanted::kValues ? "_values"
                             : wanted == Wanted::kI32  ? "_i32"
                                                       : "";
  OpCase made = make_case(op, dtype, fill, detail_of(row) + suffix, "dense");
  made.input("x", dtype, row.x, numbers).output("y", dtype, row.x);
  const bp_dtype index = wanted == Wanted::kI32 ? BP_I32 : BP_I64;
  if (wanted != Wanted::kValues) made.output("indices", index, row.x);
  made.set("axis", row.axis).reference = expected_extreme;
  made.varies = false;
  made.optional_part = small_part(dtype);
  made.is_smoke = dtype == BP_F32 || dtype == BP_I64;
  cases.push_back(std::move(made));
  return cases.back();
}

void add_extremes(OpCases& cases, uint32_t op, bp_dtype dtype) {
  for (const Row& row : all_rows()) {
    add_extreme(cases, op, row, dtype, "repeat", kRepeat, Wanted::kI64);
  }
  for (const int64_t axis : {0, 1}) {
    const auto add = [&](const Shape& x, const std::string& fill, const Fill& numbers,
                         Wanted wanted) -> OpCase& {
      return add_extreme(cases, op, {x, axis}, dtype, fill, numbers, wanted);
    };
    add({65, 33}, "repeat", kRepeat, Wanted::kValues);
    add({65, 33}, "repeat", kRepeat, Wanted::kI32);
    add({40, 50}, "special", kSpecial, Wanted::kI64);
    if (dtype != BP_BOOL && !is_unsigned(dtype)) {
      add({300, 40}, "waves", kRepeat, Wanted::kI64).derive = make_waves;
    }
    if (!is_float(dtype)) continue;
    add({67, 67}, "random", kRandom, Wanted::kI64);
    add({67, 67}, "nan_lanes", kRandom, Wanted::kI64).derive = [](CallData& data) {
      put_in_each_line(data, std::nan(""));
    };
  }
}

// ---- logcumsumexp ---------------------------------------------------------------------------- //

std::vector<Expected> expected_logcumsumexp(const CallData& data, const Numerics& numerics) {
  const bp_dtype dtype = data.tensor("x").dtype;
  return with_float(dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const reference::ScanRule rule{.axis = static_cast<size_t>(data.integer("axis")),
                                   .is_reverse = data.integer("is_reverse") != 0};
    Known known{{exactly(reference::running_logsumexps(x, rule))}};
    known.sums = [&] {
      return with_bounded(dtype, [&]<typename B>(B) {
        return Sums{{reference::running_logsumexp_bounds<B>(x, rule, numerics)}, {}};
      });
    };
    known.is_one_sided = true;  // The errors of exponentials may all have one sign.
    return judged(data, std::move(known));
  });
}

void add_logcumsumexp(OpCases& cases, bp_dtype dtype) {
  const auto add = [&](const Row& row, const std::string& fill, const Fill& numbers,
                       bool is_reverse) -> OpCase& {
    const std::string detail = detail_of(row) + (is_reverse ? "_reverse" : "");
    OpCase made = make_case(BP_OP_LOGCUMSUMEXP, dtype, fill, detail, "dense");
    made.input("x", dtype, row.x, numbers).output("y", dtype, row.x);
    made.set("axis", row.axis).set("is_reverse", int64_t{is_reverse});
    made.reference = expected_logcumsumexp;
    made.varies = false;
    made.is_smoke = dtype == BP_F32;
    cases.push_back(std::move(made));
    return cases.back();
  };
  for (const bool is_reverse : {false, true}) {
    for (const Row& row : all_rows()) {
      if (row.x.size() == 2 || !is_reverse) add(row, "random", kRandom, is_reverse);
    }
    // Terms beside the largest one vanish, and exp(x) itself overflows.
    for (const int64_t axis : {0, 1}) {
      add({{65, 33}, axis}, "far", {FillKind::kUniform, -800, 800}, is_reverse);
      for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
        const std::string fill = std::isnan(value) ? "nan_lanes" : "infinite";
        OpCase& made = add({{67, 67}, axis}, fill, kRandom, is_reverse);
        made.derive = [value](CallData& data) { put_in_each_line(data, value); };
        if (value < 0) made.detail += "_minus";
      }
    }
    const auto specials = static_cast<int64_t>(special_values(dtype).size());
    add({{specials, 1}, 1}, "special", kSpecial, is_reverse);
  }
}

}  // namespace

void add_scan_extreme(OpCases& cases) {
  for (const uint32_t op : {uint32_t{BP_OP_CUMMAX}, uint32_t{BP_OP_CUMMIN}}) {
    for (const bp_dtype dtype : kFloats) add_extremes(cases, op, dtype);
    for (const bp_dtype dtype : {BP_I32, BP_I64, BP_U8, BP_I8, BP_I16, BP_BOOL}) {
      add_extremes(cases, op, dtype);
    }
  }
  for (const bp_dtype dtype : kFloats) add_logcumsumexp(cases, dtype);
}

}  // namespace bp::conformance
