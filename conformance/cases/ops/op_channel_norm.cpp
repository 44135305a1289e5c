// Cases of group norm, instance norm and batch norm and of their gradients. Cases of layouts follow
// by rule.
#include <algorithm>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/channel_norm.hpp"

namespace bp::conformance {
namespace {

using reference::Channels;
using reference::Normalized;
using reference::Optional;

struct Row {
  Shape x;
  int64_t groups = 1;
  bool has_gamma = true;
  bool has_beta = true;
  bool has_statistics = true;  // Mean, and rstd or variance, as results.
  double eps = 1e-5;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1, 1}},
      {{1, 1, 7}},
      {{5, 8}, 2},
      {{17, 3}},
      {{4, 6, 1}, 3},
      {{3, 8, 5}, 8},  // Instance norm.
      {{2, 6, 17}, 2},
      {{3, 4, 67}, 2},
      {{2, 4, 1031}, 4},
      {{2, 6, 3, 5}, 3},
      {{2, 6, 3, 5}, 3, false, false},
      {{2, 6, 3, 5}, 2, true, false},
      {{2, 6, 3, 5}, 2, false, true},
      {{2, 6, 3, 5}, 1, true, true, false},
      {{2, 6, 3, 5}, 6, false, false, false},
      {{2, 4, 33}, 2, true, true, true, 0},
      {{2, 4, 33}, 2, true, true, true, 0.25},
      {{2, 4, 2, 3, 2}, 2},
      {{2, 2, 2, 1, 2, 1, 2, 3}, 2},
      {{0, 4, 5}, 2, true, true, false},
      {{3, 4, 0}, 2, true, true, false},
      {{3, 0, 5}, 2, true, true, false},
  };
  return rows;
}

bool is_backward(uint32_t op) {
  return op == BP_OP_GROUP_NORM_BACKWARD || op == BP_OP_BATCH_NORM_TRAINING_BACKWARD;
}

bool has_groups(uint32_t op) { return op == BP_OP_GROUP_NORM || op == BP_OP_GROUP_NORM_BACKWARD; }

bool is_of_batch(uint32_t op) {
  return op == BP_OP_BATCH_NORM_TRAINING || op == BP_OP_BATCH_NORM_TRAINING_BACKWARD;
}

std::string detail_of(const Row& row, uint32_t op) {
  std::string text = shape_text(row.x);
  if (has_groups(op)) text += "_groups" + std::to_string(row.groups);
  if (!row.has_gamma) text += "_nogamma";
  if (!row.has_beta) text += "_nobeta";
  if (!row.has_statistics && op != BP_OP_BATCH_NORM_INFERENCE) text += "_nostats";
  if (row.eps != 1e-5) text += row.eps == 0 ? "_eps0" : "_largeeps";
  return text;
}

template <typename N>
Optional<N> optional_array(const CallData& data, std::string_view name) {
  if (!data.has(name)) return std::nullopt;
  return data.array<N>(name);
}

// Each channel is a group of instance norm. The gradients see the groups by the means.
int64_t groups_of(const CallData& data) {
  if (data.op() == BP_OP_INSTANCE_NORM) return data.tensor("x").shape[1];
  return is_backward(data.op()) ? data.tensor("mean").shape[1] : data.integer("groups");
}

template <typename N>
Normalized<N> normalized(const CallData& data) {
  const auto gamma = optional_array<N>(data, "gamma"), beta = optional_array<N>(data, "beta");
  if (data.op() == BP_OP_BATCH_NORM_TRAINING) {
    return reference::batch_norm_training(data.array<N>("x"), gamma, beta, data.number("eps"));
  }
  return reference::group_norm(data.array<N>("x"), groups_of(data), gamma, beta,
                               data.number("eps"));
}

// Finds the statistics of an element: those of its group in its sample, or those of its channel.
class Members {
 public:
  explicit Members(const CallData& data)
      : channels_(data.tensor("x").shape), groups_(0), width_(0) {
    if (is_of_batch(data.op())) return;
    groups_ = groups_of(data);
    width_ = channels_.channels / groups_;
  }

  int64_t channel_of(int64_t element) const { return channels_.channel_of(element); }
  int64_t row_of(int64_t element) const {
    const int64_t channel = channel_of(element);
    return groups_ == 0 ? channel : channels_.sample_of(element) * groups_ + channel / width_;
  }

 private:
  Channels channels_;
  int64_t groups_;  // 0 in batch norm.
  int64_t width_;   // How many channels a group has.
};

std::vector<NormRow> describe(const CallData& data, const Normalized<double>& exact,
                              const Members& members) {
  std::vector<NormRow> rows(exact.mean.data.size());
  const std::vector<DoubleDouble>& x = data.tensor("x").data;
  for (size_t i = 0; i < x.size(); ++i) {
    NormRow& row = rows[static_cast<size_t>(members.row_of(static_cast<int64_t>(i)))];
    ++row.count;
    row.mean_magnitude += std::fabs(x[i].hi);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].mean_magnitude /= rows[i].count;
    rows[i].mean = exact.mean.data[i];
    rows[i].rstd = exact.rstd.data[i];
  }
  return rows;
}

// The bounds of the outputs that the call has, in the order of the frame.
Bounds norm_bounds(const CallData& data, size_t outputs) {
  Bounds bounds(outputs);
  const Members members(data);
  const auto exact = normalized<double>(data);
  const std::vector<NormRow> rows = describe(data, exact, members);
  const HostTensor& x = data.tensor("x");
  const auto gamma = optional_array<double>(data, "gamma");
  const auto beta = optional_array<double>(data, "beta");
  for (int64_t i = 0; i < exact.y.size(); ++i) {
    const int64_t channel = members.channel_of(i);
    bounds[0].push_back(norm_bound(rows[static_cast<size_t>(members.row_of(i))],
                                   x.data[static_cast<size_t>(i)].hi, gamma ? (*gamma)[channel] : 1,
                                   beta ? (*beta)[channel] : 0, exact.y[i], x.dtype));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (data.has("mean")) bounds[1].push_back(norm_mean_bound(rows[i], x.dtype));
    if (data.has("rstd")) bounds.back().push_back(norm_rstd_bound(rows[i], x.dtype));
    if (!data.has("variance")) continue;
    bounds.back().push_back(norm_variance_bound(rows[i], exact.variance.data[i], x.dtype));
  }
  return bounds;
}

std::vector<Expected> expected_norm(const CallData& data, const Numerics&) {
  const auto run = [&]<typename N>(N) {
    const auto exact = normalized<N>(data);
    std::vector<Array<N>> outputs = {exact.y};
    if (data.has("mean")) outputs.push_back(exact.mean);
    if (data.has("rstd")) outputs.push_back(exact.rstd);
    if (data.has("variance")) outputs.push_back(exact.variance);
    return outputs;
  };
  Known known = steps(data.tensor("x").dtype, run);
  const size_t outputs = known.outputs.size();
  known.formula = [&](BoundRule rule) {
    return rule == BoundRule::kNorm ? norm_bounds(data, outputs) : Bounds();
  };
  return judged(data, std::move(known));
}

std::vector<Expected> expected_inference(const CallData& data, const Numerics&) {
  return judged_steps(data, data.tensor("x").dtype, [&]<typename N>(N) {
    return std::vector{reference::batch_norm_inference(
        data.array<N>("x"), data.array<N>("mean"), data.array<N>("variance"),
        optional_array<N>(data, "gamma"), optional_array<N>(data, "beta"), data.number("eps"))};
  });
}

std::vector<Expected> expected_backward(const CallData& data, const Numerics&) {
  const Members members(data);
  return judged_steps(data, data.tensor("x").dtype, [&]<typename N>(N) {
    using std::sqrt;
    Array<N> rstd = data.array<N>(is_of_batch(data.op()) ? "variance" : "rstd");
    for (N& value : rstd.data) {
      if (!is_of_batch(data.op())) break;
      value = N(1) / sqrt(value + constant<N>(data.number("eps")));
    }
    const auto exact = reference::channel_norm_backward(
        data.array<N>("grad_y"), data.array<N>("x"), optional_array<N>(data, "gamma"),
        data.array<N>("mean"), rstd, [&](int64_t element) { return members.row_of(element); });
    std::vector<Array<N>> gradients = {exact.x};
    if (data.has("grad_gamma")) gradients.push_back(exact.gamma);
    if (data.has("grad_beta")) gradients.push_back(exact.beta);
    return gradients;
  });
}

// Computes what the forward op would have saved.
void derive_statistics(CallData& data) {
  const auto x = data.array<double>("x");
  const auto saved = is_of_batch(data.op())
                         ? reference::batch_norm_training<double>(x, std::nullopt, std::nullopt,
                                                                  data.number("eps"))
                         : reference::group_norm<double>(x, groups_of(data), std::nullopt,
                                                         std::nullopt, data.number("eps"));
  const auto store = [&](std::string_view name, const Array<double>& values) {
    HostTensor& tensor = data.tensor(name);
    tensor.data.clear();
    for (const double value : values.data) tensor.data.emplace_back(round_to(tensor.dtype, value));
  };
  store("mean", saved.mean);
  is_of_batch(data.op()) ? store("variance", saved.variance) : store("rstd", saved.rstd);
}

Shape statistics_shape(const Row& row, uint32_t op) {
  if (is_of_batch(op)) return {row.x[1]};
  return {row.x[0], op == BP_OP_INSTANCE_NORM ? row.x[1] : row.groups};
}

// Without `has_statistics`, the case does not ask for the gradients of gamma and beta.
OpCase make_backward(uint32_t op, const Row& row, bp_dtype dtype, const std::string& fill,
                     const Fill& data) {
  OpCase made = make_case(op, dtype, fill, detail_of(row, op), "dense");
  const Shape channels = {row.x[1]}, statistics = statistics_shape(row, op);
  const bp_dtype wide = accumulator_of(dtype);
  made.input("grad_y", dtype, row.x, kRandom).input("x", dtype, row.x, data);
  if (row.has_gamma) made.input("gamma", dtype, channels, kRandom);
  made.input("mean", wide, statistics, {});
  made.input(is_of_batch(op) ? "variance" : "rstd", wide, statistics, {});
  made.output("grad_x", dtype, row.x);
  if (row.has_statistics) made.output("grad_gamma", dtype, channels);
  if (row.has_statistics && row.has_beta) made.output("grad_beta", dtype, channels);
  made.set("eps", row.eps);
  made.derive = derive_statistics;
  made.reference = expected_backward;
  return made;
}

OpCase make_forward(uint32_t op, const Row& row, bp_dtype dtype, const std::string& fill,
                    const Fill& data) {
  OpCase made = make_case(op, dtype, fill, detail_of(row, op), "dense");
  const Shape channels = {row.x[1]};
  const bp_dtype wide = accumulator_of(dtype);
  const bool is_inference = op == BP_OP_BATCH_NORM_INFERENCE;
  made.input("x", dtype, row.x, data);
  if (is_inference) made.input("mean", wide, channels, data);
  if (is_inference) made.input("variance", wide, channels, kPositive);
  if (row.has_gamma) made.input("gamma", dtype, channels, kRandom);
  if (row.has_beta) made.input("beta", dtype, channels, kRandom);
  made.output("y", dtype, row.x);
  if (row.has_statistics && !is_inference) {
    const Shape rows = statistics_shape(row, op);
    made.output("mean", wide, rows).output(is_of_batch(op) ? "variance" : "rstd", wide, rows);
  }
  if (op == BP_OP_GROUP_NORM) made.set("groups", row.groups);
  made.set("eps", row.eps);
  made.reference = is_inference ? expected_inference : expected_norm;
  return made;
}

void add_rows(OpCases& cases, uint32_t op, bp_dtype dtype, const std::string& fill,
              const Fill& data) {
  std::vector<std::string> seen;  // Only group norm has groups, so two rows may be equal.
  for (const Row& row : all_rows()) {
    if (op == BP_OP_INSTANCE_NORM && row.x[1] == 0) continue;  // The op refuses it.
    OpCase made = is_backward(op) ? make_backward(op, row, dtype, fill, data)
                                  : make_forward(op, row, dtype, fill, data);
    made.is_smoke = is_smoke_dtype(dtype);
    made.varies = false;  // The result for a row of one element is its beta.
    if (std::ranges::find(seen, made.detail) != seen.end()) continue;
    seen.push_back(made.detail);
    cases.push_back(made);
    if (row.x.size() != 3 || is_backward(op)) continue;
    made.layout = "inplace_dense";
    for (TensorArgument& argument : made.tensors) {
      if (argument.name == "y") argument.alias = "x";
    }
    cases.push_back(std::move(made));
  }
}

}  // namespace

void add_channel_norm(OpCases& cases) {
  for (const uint32_t op :
       {uint32_t{BP_OP_GROUP_NORM}, uint32_t{BP_OP_INSTANCE_NORM},
        uint32_t{BP_OP_BATCH_NORM_INFERENCE}, uint32_t{BP_OP_BATCH_NORM_TRAINING},
        uint32_t{BP_OP_GROUP_NORM_BACKWARD}, uint32_t{BP_OP_BATCH_NORM_TRAINING_BACKWARD}}) {
    for (const bp_dtype dtype : kFloats) {
      add_rows(cases, op, dtype, "random", kRandom);
      // The variance is small compared with the square of the mean.
      const double spread = is_smoke_dtype(dtype) ? 1 : 100;
      add_rows(cases, op, dtype, "range", {FillKind::kUniform, 1000 - spread, 1000 + spread});
    }
  }
}

}  // namespace bp::conformance
