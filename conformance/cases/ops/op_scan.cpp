// Cases of cumsum and cumprod. Cases of layouts follow by rule.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/scan.hpp"

namespace bp::conformance {
namespace {

using reference::ScanRule;

struct Row {
  Shape x;
  int64_t axis;
};

// Lines are shorter and longer than the blocks and parts in which kernels scan them.
const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}, 0},           {{1}, 0},          {{2}, 0},
      {{7}, 0},          {{17}, 0},         {{67}, 0},
      {{1031}, 0},       {{0}, 0},          {{5, 7}, 0},
      {{5, 7}, 1},       {{3, 257}, 1},     {{257, 3}, 0},
      {{65, 33}, 0},     {{65, 33}, 1},     {{5, 4099}, 1},
      {{3, 4, 5}, 0},    {{3, 4, 5}, 1},    {{3, 4, 5}, 2},
      {{2, 3, 9, 5}, 2}, {{2, 3, 4, 5}, 3}, {{2, 1, 2, 1, 3, 1, 2, 3}, 4},
      {{3, 0}, 1},       {{3, 0}, 0},       {{0, 5}, 1},
  };
  return rows;
}

// Lines that kernels cut into parts, because there are few of them.
const std::vector<Row>& long_rows() {
  static const std::vector<Row> rows = {{{140'003}, 0}, {{2, 40'009}, 1}, {{5'003, 33}, 0}};
  return rows;
}

constexpr ScanRule kForward{}, kBackward{.is_exclusive = true, .is_reverse = true};
constexpr ScanRule kRules[] = {kForward, {.is_exclusive = true}, {.is_reverse = true}, kBackward};

ScanRule rule_of(const CallData& data) {
  return {static_cast<size_t>(data.integer("axis")), data.integer("is_exclusive") != 0,
          data.integer("is_reverse") != 0};
}

// ---- Oracles --------------------------------------------------------------------------------- //

// The results of a line share the errors of their sums, so that these have one sign more often than
// independent errors would. Only where the result is narrow, its own rounding is larger.
bool shares_errors(bp_dtype dtype) { return dtype == BP_F32 || dtype == BP_F64; }

std::vector<Expected> expected_cumsum(const CallData& data, const Numerics& numerics) {
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const ScanRule rule = rule_of(data);
    Known known{{exactly(reference::running_sums(x, rule))}};
    if constexpr (!std::is_same_v<N, Integer>) {
      known.sums = [&] {
        auto found = reference::running_sum_bounds(x, rule, numerics);
        return Sums{{std::move(found.bounds)}, {std::move(found.magnitude)}};
      };
      known.is_one_sided = shares_errors(data.tensor("y").dtype);
    }
    return judged(data, std::move(known));
  });
}

std::vector<Expected> expected_cumprod(const CallData& data, const Numerics& numerics) {
  return with_number(data.tensor("x").dtype, [&]<typename N>(N) {
    const Array<N> x = data.array<N>("x");
    const ScanRule rule = rule_of(data);
    const Array<N> y = reference::running_products(x, rule);
    Known known{{exactly(y)}};
    if constexpr (!std::is_same_v<N, Integer>) {
      const auto found = reference::running_product_bounds(x, y, rule, numerics);
      known.sums = [found] { return Sums{{found.bounds}, {found.magnitude}}; };
      known.outputs[0].also_right = [lost = found.is_lost](int64_t element, DoubleDouble) {
        return static_cast<bool>(lost[static_cast<size_t>(element)]);
      };
      known.is_one_sided = shares_errors(data.tensor("y").dtype);
    }
    return judged(data, std::move(known));
  });
}

// ---- Cases ----------------------------------------------------------------------------------- //

// Numbers near 1, whose products neither overflow nor vanish.
constexpr Fill kFactors{FillKind::kLogUniform, -0.125, 0.125};

// Puts `value` into each row of a square, and into each column: each place of a line has it once.
void put_in_each_line(CallData& data, double value) {
  HostTensor& x = data.tensor("x");
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    x.data[static_cast<size_t>(i * x.shape[1] + (i * 29) % x.shape[1])] = DoubleDouble(value);
  }
}

// Puts two infinities of different signs into rows, whose sum is NaN.
void put_infinities(CallData& data) {
  put_in_each_line(data, HUGE_VAL);
  HostTensor& x = data.tensor("x");
  const auto width = static_cast<size_t>(x.shape[1]);
  for (size_t i = 0; i < x.data.size(); i += 2 * width) x.data[i + width / 2] = -HUGE_VAL;
}

// Gives the rows sums that are small, on the way to which f16 overflows.
void overflow_on_the_way(CallData& data) {
  constexpr double kSize = 30'208;  // Every dtype of floats has this number.
  HostTensor& x = data.tensor("x");
  const int64_t width = x.shape[1], half = width / 2;
  for (int64_t i = 0; i < static_cast<int64_t>(x.data.size()); ++i) {
    x.data[static_cast<size_t>(i)] = DoubleDouble(i % width < half ? kSize : -kSize);
  }
}

// Makes integers odd, so that their product does not become 0 when it wraps.
void make_odd(CallData& data) {
  for (DoubleDouble& x : data.tensor("x").data) {
    if (to_int64(x) % 2 == 0) x = DoubleDouble(1.0);
  }
}

class Rows {
 public:
  Rows(OpCases& cases, uint32_t op, bp_dtype dtype)
      : cases_(cases), is_sum_(op == BP_OP_CUMSUM), op_(op), dtype_(dtype) {}

  void add_all() {
    for (const Row& row : all_rows()) {
      for (const ScanRule& rule : kRules) {
        const bool is_corner = rule.is_exclusive == rule.is_reverse;
        if (row.x.size() == 2 || is_corner) add_numbers(row, rule);
      }
    }
    if (dtype_ == BP_F32 || dtype_ == BP_I64) {
      for (const Row& row : long_rows()) {
        for (const ScanRule& rule : {kForward, kBackward}) add_numbers(row, rule);
      }
    }
    if (dtype_ != BP_BOOL) add("repeat", kRepeat, {{5, 67}, 1}, kForward);  // It has zeros.
    add_other_dtypes();
    if (is_float(dtype_)) add_floats();
    if (dtype_ == BP_I64 && is_sum_) {
      add("wraps", {FillKind::kUniform, 0x1p61, 0x1p62}, {{5, 67}, 1}, kForward);
    }
  }

 private:
  bp_dtype result_dtype() const { return is_float(dtype_) ? dtype_ : bp_dtype{BP_I64}; }

  OpCase& add(const std::string& fill, const Fill& data, const Row& row, const ScanRule& rule) {
    std::string detail = shape_text(row.x) + "_axis" + std::to_string(row.axis);
    if (rule.is_exclusive) detail += "_exclusive";
    if (rule.is_reverse) detail += "_reverse";
    OpCase made = make_case(op_, dtype_, fill, detail, "dense");
    made.input("x", dtype_, row.x, data).output("y", result_dtype(), row.x);
    made.set("axis", row.axis).set("is_exclusive", int64_t{rule.is_exclusive});
    made.set("is_reverse", int64_t{rule.is_reverse});
    made.reference = is_sum_ ? expected_cumsum : expected_cumprod;
    made.varies = false;
    made.is_smoke = is_smoke_dtype(dtype_) || dtype_ == BP_I64 || dtype_ == BP_BOOL;
    if (dtype_ != BP_BOOL) made.optional_part = small_part(dtype_);
    made.is_exact = is_sum_ && fill == "exact_dense";
    cases_.push_back(std::move(made));
    return cases_.back();
  }

  void add_numbers(const Row& row, const ScanRule& rule) {
    if (is_sum_) add("exact_dense", kExactDense, row, rule);
    if (is_float(dtype_)) {
      add("random", is_sum_ ? kRandom : kFactors, row, rule);
    } else if (!is_sum_ && dtype_ == BP_BOOL) {
      add("repeat", kRepeat, row, rule);
    } else if (!is_sum_) {
      add("odd", kExactDense, row, rule).derive = make_odd;
    }
  }

  // Adds rows whose result has another dtype than by default.
  void add_other_dtypes() {
    const bool is_narrow = dtype_ == BP_F16 || dtype_ == BP_BF16;
    if (!is_narrow && dtype_ != BP_I32) return;
    OpCase& made = add("repeat", kRepeat, {{5, 67}, 1}, kBackward);
    made.tensors.back().dtype = is_narrow ? BP_F32 : BP_I32;
    made.detail += is_narrow ? "_to_f32" : "_to_i32";
  }

  void add_floats() {
    const auto specials = static_cast<int64_t>(special_values(dtype_).size());
    add("special", kSpecial, {{specials, 1}, 1}, kForward);
    for (const int64_t axis : {0, 1}) {
      for (const ScanRule& rule : {kForward, kBackward}) {
        const Fill numbers = is_sum_ ? kRandom : kFactors;
        add("nan_lanes", numbers, {{67, 67}, axis}, rule).derive = [](CallData& data) {
          put_in_each_line(data, std::nan(""));
        };
        add("infinite", numbers, {{67, 67}, axis}, rule).derive = put_infinities;
      }
    }
    if (!is_sum_) return;
    add("positive", kPositive, {{5, 1031}, 1}, kForward);
    add("overflows", kRandom, {{3, 1031}, 1}, kForward).derive = overflow_on_the_way;
  }

  OpCases& cases_;
  bool is_sum_;
  uint32_t op_;
  bp_dtype dtype_;
};

}  // namespace

void add_scan(OpCases& cases) {
  for (const uint32_t op : {uint32_t{BP_OP_CUMSUM}, uint32_t{BP_OP_CUMPROD}}) {
    for (const bp_dtype dtype : kFloats) Rows(cases, op, dtype).add_all();
    for (const bp_dtype dtype : {BP_I32, BP_I64, BP_U8, BP_I8, BP_I16, BP_BOOL}) {
      Rows(cases, op, dtype).add_all();
    }
  }
}

}  // namespace bp::conformance
