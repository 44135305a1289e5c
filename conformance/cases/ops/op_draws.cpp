// Cases of randint, bernoulli, randperm and multinomial, whose results are exact.
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/random.hpp"

namespace bp::conformance {
namespace {

using enum Layout;
using reference::RandomState;

struct State {
  const char* name;
  uint64_t seed, offset;
};
// The states use both halves of the key and of the counter.
constexpr State kStates[] = {{"seed42", 42, 7}, {"wide", 0x123456789abcdef0u, 0xfedcba9876543210u}};

RandomState state_of(const CallData& data) {
  const auto word = [&](std::string_view name) {
    return static_cast<uint64_t>(to_int64(data.value(name)));
  };
  return {word("seed"), word("offset")};
}

// Adds the row, and once the row with seed and offset in memory of the device.
void add_states(OpCases& cases, OpCase row) {
  for (const State& state : kStates) {
    OpCase made = row;
    made.fill = state.name;
    made.set("seed", unsigned_scalar(state.seed)).set("offset", unsigned_scalar(state.offset));
    cases.push_back(std::move(made));
  }
  row.fill = "tensor";
  row.input("seed", BP_U64, {}, index_fill(1 << 30))
      .input("offset", BP_U64, {}, index_fill(1 << 30));
  cases.push_back(std::move(row));
}

// Returns the expectation that element i of y is value(i), in row-major order.
template <typename Value>
std::vector<Expected> each_of(const CallData& data, const Value& value) {
  Expected expected;
  for (int64_t i = 0; i < element_count(data.tensor("y").shape); ++i) {
    expected.value.push_back(exact_of(value(i)));
  }
  // The class of random numbers asks for bounds, which are 0 here.
  Known known{{std::move(expected)}};
  known.propagated = [count = element_count(data.tensor("y").shape)] {
    return Bounds{std::vector<double>(static_cast<size_t>(count))};
  };
  return judged(data, std::move(known));
}

std::vector<Expected> expected_integers(const CallData& data, const Numerics&) {
  const RandomState state = state_of(data);
  const int64_t low = data.integer("low"), high = data.integer("high");
  const bool is_narrow = data.tensor("y").dtype == BP_I32;
  return each_of(data, [&](int64_t i) {
    const int64_t drawn = reference::random_integer(state, low, high, static_cast<uint64_t>(i));
    return is_narrow ? int64_t{static_cast<int32_t>(drawn)} : drawn;
  });
}

std::vector<Expected> expected_trials(const CallData& data, const Numerics&) {
  const RandomState state = state_of(data);
  const Array<double> p = data.array<double>("p");
  const bp_dtype dtype = accumulator_of(data.tensor("p").dtype);
  return each_of(data, [&](int64_t i) {
    return reference::uniform(state, dtype, static_cast<uint64_t>(i)) < p[i] ? 1.0 : 0.0;
  });
}

std::vector<Expected> expected_order(const CallData& data, const Numerics&) {
  const std::vector<int64_t> order =
      reference::permutation(state_of(data), data.tensor("y").shape[0]);
  return each_of(data, [&](int64_t i) { return order[static_cast<size_t>(i)]; });
}

std::vector<Expected> expected_classes(const CallData& data, const Numerics&) {
  const RandomState state = state_of(data);
  const Array<double> weights = data.array<double>("weights");
  const int64_t classes = weights.shape[1], count = data.integer("count");
  return each_of(data, [&](int64_t i) {
    const auto first = static_cast<size_t>(i / count * classes);
    const auto row = std::span(weights.data).subspan(first, static_cast<size_t>(classes));
    return reference::drawn_class(row, reference::uniform(state, BP_F64, static_cast<uint64_t>(i)));
  });
}

struct Output {
  Shape shape;
  Layout layout = kDense;
};

const std::vector<Output>& outputs() {
  static const std::vector<Output> all = {
      {{}}, {{17}}, {{1031}}, {{2, 3, 5}}, {{0}}, {{5, 7}, kTransposed}, {{17}, kNegative},
  };
  return all;
}

void add_integers(OpCases& cases, bp_dtype dtype) {
  struct Range {
    int64_t low, high;
  };
  constexpr int64_t kHalf = int64_t{1} << 30;
  constexpr Range kRanges[] = {{0, 10}, {-3, 4}, {7, 8}, {-kHalf, kHalf}};
  const auto add = [&](const Output& output, const Range& range) {
    const std::string detail = shape_text(output.shape) + "_" + std::to_string(range.low) + "to" +
                               std::to_string(range.high);
    OpCase made = make_case(BP_OP_RANDINT, dtype, "", detail, layout_text(output.layout));
    made.output("y", dtype, output.shape, output.layout);
    made.set("low", range.low).set("high", range.high).reference = expected_integers;
    made.varies = false;  // A range may have one integer.
    add_states(cases, std::move(made));
  };
  for (const Range& range : kRanges) add({{67}}, range);
  for (const Output& output : outputs()) add(output, {-100, 1000});
  // Integers that need more than 32 bits, which i32 holds only after wrapping.
  add({{33}}, {int64_t{1} << 40, (int64_t{1} << 40) + 1000});
}

void add_trials(OpCases& cases, bp_dtype dtype, bp_dtype result) {
  const auto add = [&](const Output& output, const std::string& name, const Fill& fill) {
    const std::string detail = shape_text(output.shape) + "_" + name + "_" + dtype_text(result);
    OpCase made = make_case(BP_OP_BERNOULLI, dtype, "", detail, layout_text(output.layout));
    made.input("p", dtype, output.shape, fill).output("y", result, output.shape, output.layout);
    made.reference = expected_trials;
    made.is_smoke = is_smoke_dtype(dtype) && result == dtype;
    made.varies = false;
    add_states(cases, std::move(made));
  };
  for (const Output& output : outputs()) add(output, "share", {FillKind::kUniform, 0, 1});
  add({{67}}, "always", {FillKind::kUniform, 1, 1});
  add({{67}}, "never", {FillKind::kUniform, 0, 0});
  add({{67}}, "special", kSpecial);
}

void add_orders(OpCases& cases, bp_dtype dtype) {
  const auto add = [&](int64_t count, Layout layout) {
    OpCase made = make_case(BP_OP_RANDPERM, dtype, "", std::to_string(count), layout_text(layout));
    made.output("y", dtype, {count}, layout);
    made.reference = expected_order;
    made.varies = count > 8;
    add_states(cases, std::move(made));
  };
  for (const int64_t count : {0, 1, 2, 17, 67, 1031, 5003}) add(count, kDense);
  for (const Layout layout : {kStepped, kNegative, kOffset}) add(17, layout);
}

void spoil_weights(CallData& data) {
  constexpr double kNothing[] = {-1, 0, HUGE_VAL, -HUGE_VAL, NAN};
  std::vector<DoubleDouble>& weights = data.tensor("weights").data;
  for (size_t i = 0; i < weights.size(); i += 2) weights[i] = kNothing[i / 2 % 5];
}

void add_classes(OpCases& cases, bp_dtype dtype, bp_dtype index) {
  struct Row {
    int64_t rows, classes, count;
    const char* name = "positive";
  };
  constexpr Row kRows[] = {
      {1, 1, 5},          {1, 7, 1},
      {3, 5, 17},         {2, 67, 33},
      {1, 1031, 9},       {0, 4, 3},
      {4, 3, 0},          {3, 9, 20, "spoiled"},
      {2, 5, 11, "zero"}, {2, 40, 25, "steep"},
  };
  for (const Row& row : kRows) {
    const std::string_view name = row.name;
    const std::string detail = shape_text({row.rows, row.classes}) + "_" +
                               std::to_string(row.count) + "_" + row.name + "_" + dtype_text(index);
    const Fill fill = name == "zero"    ? Fill{FillKind::kUniform, 0, 0}
                      : name == "steep" ? Fill{FillKind::kLogUniform, -14, 14}
                                        : kPositive;
    OpCase made = make_case(BP_OP_MULTINOMIAL, dtype, "", detail, "dense");
    made.input("weights", dtype, {row.rows, row.classes}, fill);
    made.output("y", index, {row.rows, row.count}).set("count", row.count);
    made.reference = expected_classes;
    if (name == "spoiled") made.derive = spoil_weights;
    made.is_smoke = is_smoke_dtype(dtype) && index == BP_I64;
    made.varies = false;
    add_states(cases, std::move(made));
  }
}

}  // namespace

void add_draws(OpCases& cases) {
  for (const bp_dtype dtype : {BP_I64, BP_I32}) {
    add_integers(cases, dtype);
    add_orders(cases, dtype);
  }
  for (const bp_dtype dtype : kFloats) {
    for (const bp_dtype result : {dtype, bp_dtype{BP_BOOL}}) add_trials(cases, dtype, result);
    for (const bp_dtype index : {BP_I64, BP_I32}) add_classes(cases, dtype, index);
  }
}

}  // namespace bp::conformance
