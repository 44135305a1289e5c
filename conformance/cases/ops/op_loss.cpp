// Cases of cross_entropy, its gradient, and nll_loss.
#include <algorithm>
#include <iterator>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/loss.hpp"

namespace bp::conformance {
namespace {

using enum Layout;
using reference::CrossEntropySettings;
using reference::Reduction;

constexpr int64_t kIgnored = -100;

struct Row {
  int64_t rows, classes;
  Reduction reduction = Reduction::kMean;
  double smoothing = 0;
  bool has_lse = true;
  bool ignores = false;  // Every third row is ignored.
  Layout x = kDense;
};

const std::vector<Row>& all_rows() {
  using enum Reduction;
  static const std::vector<Row> rows = {
      {1, 1},
      {1, 10},
      {8, 10},
      {17, 10},
      {5, 67},
      {3, 1031},
      {8, 10, kNone},
      {17, 33, kNone, 0.1},
      {8, 10, kSum},
      {17, 33, kSum, 0.1},
      {17, 33, kMean, 0.25},
      {8, 10, kMean, 0, false},
      {8, 10, kNone, 0, false},
      {17, 10, kMean, 0, true, true},
      {17, 10, kNone, 0.1, true, true},
      {17, 10, kSum, 0, false, true},
      {17, 10, kMean, 0, true, false, kTransposed},
      {17, 10, kNone, 0.1, true, false, kSliced},
      {17, 10, kMean, 0, true, true, kStepped},
      {17, 10, kMean, 0, true, false, kOffset},
      {17, 10, kNone, 0, true, false, kNegative},
      {17, 10, kMean, 0, true, false, kBroadcastFirst},
      {0, 10, kNone},
      {0, 10, kSum},
      {0, 10, kMean},  // The mean of nothing is no number.
  };
  return rows;
}

std::string detail_of(const Row& row) {
  constexpr const char* kNames[] = {"none", "mean", "sum"};
  std::string text = "n" + std::to_string(row.rows) + "c" + std::to_string(row.classes) + "_" +
                     kNames[static_cast<int>(row.reduction)];
  if (row.smoothing != 0) text += "_smooth" + std::to_string(static_cast<int>(row.smoothing * 100));
  return text + (row.has_lse ? "" : "_nolse") + (row.ignores ? "_ignore" : "");
}

constexpr int64_t kReductions[] = {BP_CROSS_ENTROPY_REDUCTION_NONE, BP_CROSS_ENTROPY_REDUCTION_MEAN,
                                   BP_CROSS_ENTROPY_REDUCTION_SUM};

Reduction reduction_of(const CallData& data) {
  const auto reduction = std::ranges::find(kReductions, data.integer("reduction"));
  return static_cast<Reduction>(reduction - std::begin(kReductions));
}

CrossEntropySettings settings_of(const CallData& data) {
  return {data.integer("ignore_index"), data.number("label_smoothing"), reduction_of(data)};
}

void set_attributes(OpCase& made, const Row& row) {
  made.set("ignore_index", kIgnored);
  if (made.op != BP_OP_NLL_LOSS) made.set("label_smoothing", row.smoothing);
  made.set("reduction", kReductions[static_cast<int>(row.reduction)]);
}

void ignore_rows(CallData& data, const Row& row) {
  if (!row.ignores) return;
  std::vector<DoubleDouble>& target = data.tensor("target").data;
  for (size_t i = 1; i < target.size(); i += 3) {
    target[i] = DoubleDouble(static_cast<double>(kIgnored));
  }
}

Array<int64_t> acting_targets(const CallData& data) {
  return acting_indices(data, "target", data.tensor("x").shape[1], data.integer("ignore_index"));
}

std::vector<Expected> expected_forward(const CallData& data, const Numerics&) {
  const Array<int64_t> target = acting_targets(data);
  const CrossEntropySettings settings = settings_of(data);
  return judged_steps(data, data.tensor("x").dtype, [&]<typename N>(N) {
    const auto losses = reference::cross_entropy(data.array<N>("x"), target, settings);
    std::vector<Array<N>> outputs = {losses.y};
    if (data.has("lse")) outputs.push_back(losses.lse);
    return outputs;
  });
}

std::vector<Expected> expected_nll(const CallData& data, const Numerics&) {
  const Array<int64_t> target = acting_targets(data);
  return judged_steps(data, data.tensor("x").dtype, [&]<typename N>(N) {
    return std::vector{reference::nll_loss(data.array<N>("x"), target, data.integer("ignore_index"),
                                           reduction_of(data))};
  });
}

std::vector<Expected> expected_backward(const CallData& data, const Numerics&) {
  const Array<int64_t> target = acting_targets(data);
  const CrossEntropySettings settings = settings_of(data);
  return judged_steps(data, data.tensor("x").dtype, [&]<typename N>(N) {
    return std::vector{reference::cross_entropy_backward(
        data.array<N>("grad_y"), data.array<N>("x"), target, data.array<N>("lse"), settings)};
  });
}

// Computes what the forward op would have saved, rounded to its dtype.
void derive_lse(CallData& data) {
  HostTensor& lse = data.tensor("lse");
  const auto losses =
      reference::cross_entropy(data.array<double>("x"), acting_targets(data), settings_of(data));
  lse.data.clear();
  for (const double value : losses.lse.data) {
    lse.data.emplace_back(round_to(lse.dtype, value));
  }
}

Shape loss_shape(const Row& row) {
  return row.reduction == Reduction::kNone ? Shape{row.rows} : Shape{};
}

// nll_loss has no lse and no smoothing, so rows that differ in them alone are equal.
bool is_row_of_nll(const Row& row) { return row.smoothing == 0 && (row.has_lse || row.ignores); }

OpCase make_nll(const Row& row, bp_dtype dtype, const std::string& fill, const Fill& fill_of_x) {
  Row own = row;
  own.has_lse = true;
  OpCase made = make_case(BP_OP_NLL_LOSS, dtype, fill, detail_of(own), layout_text(row.x));
  const bp_dtype index = row.rows == 5 ? BP_I32 : BP_I64;
  made.input("x", dtype, {row.rows, row.classes}, fill_of_x, row.x);
  made.input("target", index, {row.rows}, index_fill(row.classes));
  made.output("y", dtype, loss_shape(row));
  made.derive = [row](CallData& data) { ignore_rows(data, row); };
  made.reference = expected_nll;
  return made;
}

void add_rows(OpCases& cases, bp_dtype dtype, const std::string& fill, const Fill& fill_of_x,
              bool is_smoke) {
  for (const Row& row : all_rows()) {
    OpCase forward =
        make_case(BP_OP_CROSS_ENTROPY, dtype, fill, detail_of(row), layout_text(row.x));
    forward.input("x", dtype, {row.rows, row.classes}, fill_of_x, row.x);
    forward.input("target", BP_I64, {row.rows}, index_fill(row.classes));
    forward.output("y", dtype, loss_shape(row));
    if (row.has_lse) forward.output("lse", accumulator_of(dtype), {row.rows});
    forward.derive = [row](CallData& data) { ignore_rows(data, row); };
    forward.reference = expected_forward;

    OpCase backward =
        make_case(BP_OP_CROSS_ENTROPY_BACKWARD, dtype, fill, detail_of(row), layout_text(row.x));
    backward.input("grad_y", dtype, loss_shape(row), kRandom);
    backward.input("x", dtype, {row.rows, row.classes}, fill_of_x, row.x);
    backward.input("target", BP_I64, {row.rows}, index_fill(row.classes));
    backward.input("lse", accumulator_of(dtype), {row.rows}, {});
    backward.output("grad_x", dtype, {row.rows, row.classes});
    backward.derive = [row](CallData& data) {
      ignore_rows(data, row);
      derive_lse(data);
    };
    backward.reference = expected_backward;

    OpCase nll = make_nll(row, dtype, fill, fill_of_x);
    for (OpCase* made : {&forward, &backward, &nll}) {
      set_attributes(*made, row);
      made->is_smoke = is_smoke;
      made->varies = false;  // Ignored rows are zero, and a mean is one number.
      if (made == &backward && !row.has_lse) continue;  // The gradient always has lse.
      if (made == &nll && !is_row_of_nll(row)) continue;
      cases.push_back(std::move(*made));
    }
  }
}

void add_in_place(OpCases& cases, bp_dtype dtype) {
  OpCases rows;
  add_rows(rows, dtype, "random", {FillKind::kUniform, -4, 4}, true);
  for (OpCase& made : rows) {
    if (made.op != BP_OP_CROSS_ENTROPY_BACKWARD || made.layout != "dense") continue;
    made.layout = "inplace_dense";
    made.tensors.back().alias = "x";
    cases.push_back(std::move(made));
    return;
  }
}

// The number that is ignored can be that of a class. It can also be the target of all rows, which
// leaves nothing for a mean.
void add_ignored_class(OpCases& cases, bp_dtype dtype) {
  OpCases rows;
  add_rows(rows, dtype, "random", {FillKind::kUniform, -4, 4}, is_smoke_dtype(dtype));
  for (const OpCase& row : rows) {
    const bool is_first = row.detail == "n8c10_mean" || row.detail == "n8c10_sum";
    const bool is_wanted = is_first || row.detail == "n8c10_none" ||
                           row.detail == "n17c33_none_smooth10" ||
                           row.detail == "n17c33_sum_smooth10";
    if (row.layout != "dense" || !is_wanted) continue;
    OpCase made = row;
    made.detail += "_class3";
    for (Attribute& attribute : made.attributes) {
      if (attribute.name == "ignore_index") attribute.value = int64_t{3};
    }
    cases.push_back(made);
    if (!is_first) continue;
    made.detail += "_all";
    made.derive = [derive = row.derive](CallData& data) {
      std::ranges::fill(data.tensor("target").data, DoubleDouble(3));
      derive(data);
    };
    cases.push_back(std::move(made));
  }
}

void add_out_of_range(OpCases& cases) {
  for (const int64_t wrong : {int64_t{-1}, int64_t{10}}) {
    OpCases rows;
    add_rows(rows, BP_F32, "out_of_range", kRandom, true);
    for (OpCase& made : rows) {
      if (made.detail != "n8c10_mean") continue;
      made.detail += "_target" + std::to_string(wrong);
      made.fails_on_device = true;
      made.derive = [derive = made.derive, wrong](CallData& data) {
        derive(data);
        data.tensor("target").data[5] = DoubleDouble::from_int64(wrong);
      };
      cases.push_back(std::move(made));
    }
  }
}

// Targets out of range that do not fail. One of them may act as a target that is ignored.
void add_bounds(OpCases& cases, OutOfRange rule) {
  OpCases rows;
  add_rows(rows, BP_F32, "", {FillKind::kUniform, -4, 4}, true);
  for (const OpCase& row : rows) {
    if (row.layout != "dense" || !row.detail.starts_with("n17c")) continue;
    const auto x = std::ranges::find(row.tensors, std::string_view("x"), &TensorArgument::name);
    cases.push_back(with_bounds(row, rule, "target", x->shape.back(), kIgnored));
    if (!row.detail.ends_with("_mean_ignore")) continue;
    OpCase first = cases.back();
    first.detail += "_first";
    for (Attribute& attribute : first.attributes) {
      if (attribute.name == "ignore_index") attribute.value = int64_t{0};
    }
    cases.push_back(std::move(first));
  }
}

}  // namespace

void add_loss(OpCases& cases) {
  for (const bp_dtype dtype : {BP_F32, BP_F64, BP_F16, BP_BF16}) {
    const bool is_smoke = dtype == BP_F32 || dtype == BP_F64;
    add_rows(cases, dtype, "random", {FillKind::kUniform, -4, 4}, is_smoke);
    add_rows(cases, dtype, "range", {FillKind::kUniform, -100, 100}, is_smoke);
  }
  for (const bp_dtype dtype : kFloats) add_ignored_class(cases, dtype);
  add_in_place(cases, BP_F32);
  add_in_place(cases, BP_F64);
  add_out_of_range(cases);
  add_bounds(cases, OutOfRange::kClamp);
  add_bounds(cases, OutOfRange::kUndefined);
}

}  // namespace bp::conformance
