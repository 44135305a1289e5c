// Cases of losses between the elements of two tensors. Cases of layouts follow by rule.
#include <limits>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/reference/element_loss.hpp"

namespace bp::conformance {
namespace {

using reference::Reduction;

// A loss, and the name of the width of its parabola; "" if it has none.
struct Loss {
  uint32_t op;
  std::string_view width;
};
constexpr Loss kLosses[] = {{BP_OP_MSE_LOSS, ""},
                            {BP_OP_L1_LOSS, ""},
                            {BP_OP_SMOOTH_L1_LOSS, "beta"},
                            {BP_OP_HUBER_LOSS, "delta"},
                            {BP_OP_BCE_WITH_LOGITS_LOSS, ""},
                            {BP_OP_KL_DIV_LOSS, ""}};

// The ops share the values of the enumeration.
constexpr int64_t kNone = BP_MSE_LOSS_REDUCTION_NONE, kMean = BP_MSE_LOSS_REDUCTION_MEAN,
                  kSum = BP_MSE_LOSS_REDUCTION_SUM;

struct Row {
  Shape shape;
  int64_t reduction;
  double width = 1;
  bool has_weight = false;
  bool has_pos_weight = false;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{}, kNone},
      {{}, kMean},
      {{1}, kSum},
      {{17}, kNone},
      {{17}, kMean},
      {{17}, kSum},
      {{3, 8}, kNone},
      {{5, 67}, kNone},
      {{5, 67}, kMean},
      {{3, 1031}, kSum},
      {{2, 3, 4, 5}, kNone},
      {{2, 3, 4, 5}, kMean},
      {{2, 1, 2, 1, 2, 1, 2, 3}, kSum},
      {{0}, kNone},
      {{0, 4}, kSum},
      {{4, 0}, kMean},  // The mean of nothing is no number.
      {{17}, kNone, 0.25},
      {{5, 67}, kMean, 0.25},
      {{5, 17}, kSum, 3.3},
      {{5, 17}, kNone, 1, true},
      {{5, 17}, kMean, 1, false, true},
      {{5, 17}, kNone, 1, true, true},
      {{5, 17}, kSum, 1, true, true},
  };
  return rows;
}

bool is_row_of(const Loss& loss, const Row& row) {
  if (row.width != 1 && loss.width.empty()) return false;
  const bool is_plain = !row.has_weight && !row.has_pos_weight;
  return is_plain || loss.op == BP_OP_BCE_WITH_LOGITS_LOSS;
}

std::string detail_of(const Row& row) {
  std::string text = shape_text(row.shape);
  text += row.reduction == kNone ? "_none" : row.reduction == kMean ? "_mean" : "_sum";
  if (row.width != 1) text += "_width" + std::to_string(static_cast<int>(row.width * 100));
  return text + (row.has_weight ? "_weight" : "") + (row.has_pos_weight ? "_posweight" : "");
}

std::string_view width_name(uint32_t op) {
  for (const Loss& loss : kLosses) {
    if (loss.op == op) return loss.width;
  }
  return "";
}

template <typename N>
N loss_of(uint32_t op, N x, N target, double width) {
  switch (op) {
    case BP_OP_MSE_LOSS:
      return reference::squared_loss(x, target);
    case BP_OP_L1_LOSS:
      return reference::absolute_loss(x, target);
    case BP_OP_SMOOTH_L1_LOSS:
      return reference::smooth_absolute_loss(x, target, width);
    case BP_OP_HUBER_LOSS:
      return reference::huber_loss(x, target, width);
    default:
      return reference::divergence(x, target);
  }
}

template <typename N>
Array<N> binary_losses(const CallData& data) {
  const Array<N> x = data.array<N>("x"), target = data.array<N>("target");
  Array<N> losses(x.shape), ones(x.shape);
  for (N& one : ones.data) one = N(1);
  const auto given = [&](std::string_view name) {
    return data.has(name) ? data.array<N>(name) : ones;
  };
  const Array<N> weight = given("weight"), pos_weight = given("pos_weight");
  for (int64_t i = 0; i < x.size(); ++i) {
    losses[i] = reference::binary_loss(x[i], target[i], pos_weight[i]) * weight[i];
  }
  return losses;
}

template <typename N>
Array<N> losses_of(const CallData& data) {
  if (data.op() == BP_OP_BCE_WITH_LOGITS_LOSS) return binary_losses<N>(data);
  const std::string_view name = width_name(data.op());
  const double width = name.empty() ? 1 : data.number(name);
  const Array<N> x = data.array<N>("x"), target = data.array<N>("target");
  Array<N> losses(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    losses[i] = loss_of(data.op(), x[i], target[i], width);
  }
  return losses;
}

// If finite arguments let a step before the last one overflow, any loss is right.
void allow_overflow(Expected& expected, const CallData& data) {
  std::vector<bool> is_lost = with_bounded(data.tensor("x").dtype, [&]<typename N>(N) {
    std::vector<bool> found;
    for (const N& loss : losses_of<N>(data).data) found.push_back(loss.is_lost);
    return found;
  });
  for (const HostTensor& tensor : data.tensors()) {
    if (tensor.role != Role::kInput) continue;
    for (size_t i = 0; i < is_lost.size(); ++i) {
      is_lost[i] = is_lost[i] && std::isfinite(tensor.data[i].hi);
    }
  }
  expected.also_right = [is_lost = std::move(is_lost)](int64_t element, DoubleDouble) {
    return is_lost[static_cast<size_t>(element)];
  };
}

std::vector<Expected> expected_losses(const CallData& data, const Numerics&) {
  const int64_t chosen = data.integer("reduction");
  const Reduction reduction = chosen == kNone   ? Reduction::kNone
                              : chosen == kMean ? Reduction::kMean
                                                : Reduction::kSum;
  const bp_dtype dtype = data.tensor("x").dtype;
  std::vector<Expected> expected = judged_steps(data, dtype, [&]<typename N>(N) {
    Array<N> losses = losses_of<N>(data);
    const int64_t count = losses.size();
    return std::vector{reference::reduced(std::move(losses), reduction, count)};
  });
  if (reduction == Reduction::kNone) allow_overflow(expected[0], data);
  return expected;
}

struct Fills {
  Fill x, target;
};

// Probabilities, and numbers around them.
Fills fills_of(const Loss& loss, double size) {
  if (loss.op == BP_OP_BCE_WITH_LOGITS_LOSS) {
    return {{FillKind::kUniform, -size, size}, {FillKind::kUniform, 0, 1}};
  }
  if (loss.op == BP_OP_KL_DIV_LOSS) {
    return {{FillKind::kUniform, -size, 0}, {FillKind::kUniform, 0, 1}};
  }
  return {{FillKind::kUniform, -size, size}, kRandom};
}

OpCase make_row(const Loss& loss, const Row& row, bp_dtype dtype, const std::string& fill,
                const Fills& fills) {
  OpCase made = make_case(loss.op, dtype, fill, detail_of(row), "dense");
  made.input("x", dtype, row.shape, fills.x).input("target", dtype, row.shape, fills.target);
  if (row.has_weight) made.input("weight", dtype, row.shape, kPositive);
  if (row.has_pos_weight) made.input("pos_weight", dtype, row.shape, kPositive);
  made.output("y", dtype, row.reduction == kNone ? row.shape : Shape{});
  if (!loss.width.empty()) made.set(loss.width, row.width);
  made.set("reduction", row.reduction);
  made.reference = expected_losses;
  made.is_smoke = is_smoke_dtype(dtype);
  made.varies = false;  // A mean is one number.
  return made;
}

void add_rows(OpCases& cases, const Loss& loss, bp_dtype dtype, const std::string& fill,
              const Fills& fills) {
  for (const Row& row : all_rows()) {
    if (is_row_of(loss, row)) cases.push_back(make_row(loss, row, dtype, fill, fills));
  }
}

// Sets pairs of elements where a loss changes its formula, or one part of it has no weight.
void derive_edges(CallData& data) {
  std::vector<DoubleDouble>& x = data.tensor("x").data;
  std::vector<DoubleDouble>& target = data.tensor("target").data;
  const std::string_view name = width_name(data.op());
  const DoubleDouble width(name.empty() ? 1 : data.number(name));
  for (size_t i = 0; i < x.size(); i += 2) {
    const bool is_first = i % 4 == 0;
    if (data.op() == BP_OP_BCE_WITH_LOGITS_LOSS) {
      target[i] = DoubleDouble(is_first ? 1 : 0);
    } else if (data.op() == BP_OP_KL_DIV_LOSS) {
      target[i] = DoubleDouble(is_first ? 0 : 1);
      if (is_first) x[i] = DoubleDouble(-std::numeric_limits<double>::infinity());
    } else {
      target[i] = DoubleDouble(0.5);
      x[i] = is_first ? target[i] : target[i] + width;
    }
  }
}

void add_edges(OpCases& cases, const Loss& loss, bp_dtype dtype) {
  for (const Row& row : all_rows()) {
    if (row.shape != Shape{17} || !is_row_of(loss, row)) continue;
    OpCase made = make_row(loss, row, dtype, "edges", fills_of(loss, 4));
    made.derive = derive_edges;
    cases.push_back(std::move(made));
  }
}

}  // namespace

void add_element_loss(OpCases& cases) {
  for (const Loss& loss : kLosses) {
    for (const bp_dtype dtype : kFloats) {
      add_rows(cases, loss, dtype, "random", fills_of(loss, 4));
      add_rows(cases, loss, dtype, "range", fills_of(loss, 100));
      add_edges(cases, loss, dtype);
      const bool is_of_probabilities =
          loss.op == BP_OP_BCE_WITH_LOGITS_LOSS || loss.op == BP_OP_KL_DIV_LOSS;
      if (is_of_probabilities) continue;
      // The distance is small compared with the numbers.
      const Fill far{FillKind::kUniform, 1000, 1004};
      add_rows(cases, loss, dtype, "offset", {far, far});
    }
  }
}

}  // namespace bp::conformance
