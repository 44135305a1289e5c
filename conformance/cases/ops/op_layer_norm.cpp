// Cases of layer_norm and rms_norm and of their gradients. Cases of layouts follow by rule.
#include <algorithm>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_oracles.hpp"
#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/layer_norm.hpp"

namespace bp::conformance {
namespace {

using reference::Norm;
using reference::Optional;

struct Row {
  Shape x;
  int64_t ndim = 1;  // The number of axes that are normalized together.
  bool has_gamma = true;
  bool has_beta = true;
  bool has_statistics = true;
  double eps = 1e-5;
};

const std::vector<Row>& all_rows() {
  static const std::vector<Row> rows = {
      {{1}},
      {{7}},
      {{17}},
      {{5, 1}},
      {{3, 8}},
      {{5, 10}},
      {{67, 5}},
      {{4, 67}},
      {{3, 1031}},
      {{5, 16}, 1, false, false},
      {{5, 17}, 1, true, false},
      {{5, 17}, 1, false, true},
      {{5, 17}, 1, true, true, false},
      {{5, 17}, 1, true, false, false},
      {{5, 17}, 1, false, true, false},
      {{5, 17}, 1, false, false, false},
      {{5, 33}, 1, true, true, true, 0},
      {{5, 33}, 1, true, true, true, 0.25},
      {{5, 9}, 2},
      {{3, 4, 5}, 1},
      {{3, 4, 5}, 2},
      {{3, 4, 5}, 3},
      {{2, 3, 4, 5}, 1},
      {{2, 3, 4, 5}, 2, false},
      {{2, 3, 4, 5}, 4},
      {{2, 1, 2, 1, 2, 1, 2, 3}, 3},
      {{0, 5}},
      {{2, 0, 5}},
      {{5, 0}, 1, true, true, false},
  };
  return rows;
}

std::string detail_of(const Row& row, Norm norm) {
  std::string text = shape_text(row.x) + "_over" + std::to_string(row.ndim);
  if (!row.has_gamma) text += "_nogamma";
  if (!row.has_beta && norm == Norm::kLayer) text += "_nobeta";
  if (!row.has_statistics) text += "_nostats";
  if (row.eps != 1e-5) text += row.eps == 0 ? "_eps0" : "_largeeps";
  return text;
}

Shape rows_shape(const Row& row) { return Shape(row.x.begin(), row.x.end() - row.ndim); }
Shape weights_shape(const Row& row) { return Shape(row.x.end() - row.ndim, row.x.end()); }

template <typename N>
Optional<N> optional_array(const CallData& data, std::string_view name) {
  if (!data.has(name)) return std::nullopt;
  return data.array<N>(name);
}

// Returns the axes of `x` that count rows. weights_shape() returns those that are normalized
// together.
Shape rows_shape(const CallData& data) {
  const Shape& x = data.tensor("x").shape;
  return Shape(x.begin(), x.end() - data.integer("normalized_ndim"));
}
Shape weights_shape(const CallData& data) {
  const Shape& x = data.tensor("x").shape;
  return Shape(x.end() - data.integer("normalized_ndim"), x.end());
}

template <typename N>
reference::Normalized<N> normalized(const CallData& data, Norm norm) {
  return reference::normalize(data.array<N>("x"), rows_shape(data),
                              optional_array<N>(data, "gamma"), optional_array<N>(data, "beta"),
                              data.number("eps"), norm);
}

// Returns the values that the bounds of row `i` need.
NormRow describe(const CallData& data, const reference::Normalized<double>& exact, int64_t i,
                 int64_t width, Norm norm) {
  NormRow described{static_cast<double>(width), 0, exact.mean[i], exact.rstd[i]};
  const HostTensor& x = data.tensor("x");
  for (int64_t k = 0; k < width && norm == Norm::kLayer; ++k) {
    described.mean_magnitude += std::fabs(x.data[static_cast<size_t>(i * width + k)].hi);
  }
  if (width != 0) described.mean_magnitude /= static_cast<double>(width);
  return described;
}

// The bounds of the outputs that the call has, in the order of the frame.
Bounds norm_bounds(const CallData& data, Norm norm, size_t outputs) {
  Bounds bounds(outputs);
  const auto exact = normalized<double>(data, norm);
  const bp_dtype dtype = data.tensor("x").dtype;
  const int64_t width = element_count(weights_shape(data));
  const auto gamma = optional_array<double>(data, "gamma");
  const auto beta = optional_array<double>(data, "beta");
  for (int64_t i = 0; i < exact.rstd.size(); ++i) {
    const NormRow described = describe(data, exact, i, width, norm);
    for (int64_t k = 0; k < width; ++k) {
      const double x = data.tensor("x").data[static_cast<size_t>(i * width + k)].hi;
      bounds[0].push_back(norm_bound(described, x, gamma ? (*gamma)[k] : 1, beta ? (*beta)[k] : 0,
                                     exact.y[i * width + k], dtype));
    }
    if (data.has("mean")) bounds[1].push_back(norm_mean_bound(described, dtype));
    if (data.has("rstd")) bounds.back().push_back(norm_rstd_bound(described, dtype));
  }
  return bounds;
}

// These oracles are plain functions of the call, so that they can also judge calls of other shapes.
template <Norm kNorm>
std::vector<Expected> expected_forward(const CallData& data, const Numerics&) {
  const auto run = [&]<typename N>(N) {
    const auto exact = normalized<N>(data, kNorm);
    std::vector<Array<N>> outputs = {exact.y};
    if (data.has("mean")) outputs.push_back(exact.mean);
    if (data.has("rstd")) outputs.push_back(exact.rstd);
    return outputs;
  };
  Known known = steps(data.tensor("x").dtype, run);
  const size_t outputs = known.outputs.size();
  known.formula = [&](BoundRule rule) {
    return rule == BoundRule::kNorm ? norm_bounds(data, kNorm, outputs) : Bounds();
  };
  return judged(data, std::move(known));
}

std::vector<Expected> expected_backward(const CallData& data, const Numerics&) {
  return judged_steps(data, data.tensor("x").dtype, [&]<typename N>(N) {
    const auto exact = reference::normalize_backward(
        data.array<N>("grad_y"), data.array<N>("x"), optional_array<N>(data, "gamma"),
        optional_array<N>(data, "mean"), data.array<N>("rstd"), weights_shape(data));
    std::vector<Array<N>> gradients = {exact.x};
    if (data.has("grad_gamma")) gradients.push_back(exact.gamma);
    if (data.has("grad_beta")) gradients.push_back(exact.beta);
    return gradients;
  });
}

// Computes what the forward op would have saved.
void derive_statistics(CallData& data, Norm norm) {
  const auto saved =
      reference::normalize<double>(data.array<double>("x"), rows_shape(data), std::nullopt,
                                   std::nullopt, data.number("eps"), norm);
  const auto store = [&](std::string_view name, const Array<double>& values) {
    HostTensor& tensor = data.tensor(name);
    tensor.data.clear();
    for (const double value : values.data) tensor.data.emplace_back(round_to(tensor.dtype, value));
  };
  if (norm == Norm::kLayer) store("mean", saved.mean);
  store("rstd", saved.rstd);
}

OpCase make_forward(const Row& row, Norm norm, bp_dtype dtype, const std::string& fill,
                    const Fill& data) {
  const uint32_t op = norm == Norm::kLayer ? uint32_t{BP_OP_LAYER_NORM} : uint32_t{BP_OP_RMS_NORM};
  OpCase made = make_case(op, dtype, fill, detail_of(row, norm), "dense");
  made.input("x", dtype, row.x, data);
  if (row.has_gamma) made.input("gamma", dtype, weights_shape(row), kRandom);
  const bool has_beta = row.has_beta && norm == Norm::kLayer;
  if (has_beta) made.input("beta", dtype, weights_shape(row), kRandom);
  made.output("y", dtype, row.x);
  if (row.has_statistics && norm == Norm::kLayer) {
    made.output("mean", accumulator_of(dtype), rows_shape(row));
  }
  if (row.has_statistics) made.output("rstd", accumulator_of(dtype), rows_shape(row));
  made.set("normalized_ndim", row.ndim).set("eps", row.eps);
  made.reference =
      norm == Norm::kLayer ? expected_forward<Norm::kLayer> : expected_forward<Norm::kRms>;
  return made;
}

// Without `has_statistics`, the case does not ask for the gradients of gamma and beta.
OpCase make_backward(const Row& row, Norm norm, bp_dtype dtype, const std::string& fill,
                     const Fill& data) {
  const bool is_layer = norm == Norm::kLayer;
  const uint32_t op =
      is_layer ? uint32_t{BP_OP_LAYER_NORM_BACKWARD} : uint32_t{BP_OP_RMS_NORM_BACKWARD};
  OpCase made = make_case(op, dtype, fill, detail_of(row, norm), "dense");
  made.input("grad_y", dtype, row.x, kRandom).input("x", dtype, row.x, data);
  if (row.has_gamma) made.input("gamma", dtype, weights_shape(row), kRandom);
  if (is_layer) made.input("mean", accumulator_of(dtype), rows_shape(row), {});
  made.input("rstd", accumulator_of(dtype), rows_shape(row), {});
  made.output("grad_x", dtype, row.x);
  if (row.has_statistics) made.output("grad_gamma", dtype, weights_shape(row));
  if (row.has_beta && is_layer) made.output("grad_beta", dtype, weights_shape(row));
  made.set("normalized_ndim", row.ndim).set("eps", row.eps);
  made.derive = [norm](CallData& call) { derive_statistics(call, norm); };
  made.reference = expected_backward;
  return made;
}

void add_rows(OpCases& cases, Norm norm, bp_dtype dtype, const std::string& fill,
              const Fill& data) {
  std::vector<std::string> seen;  // rms_norm has no beta, so two rows may be equal.
  for (const Row& row : all_rows()) {
    const std::string detail = detail_of(row, norm);
    if (std::find(seen.begin(), seen.end(), detail) != seen.end()) continue;
    seen.push_back(detail);
    for (OpCase made : {make_forward(row, norm, dtype, fill, data),
                        make_backward(row, norm, dtype, fill, data)}) {
      made.is_smoke = is_smoke_dtype(dtype);
      made.varies = false;  // The result for a row of one element is its beta.
      cases.push_back(made);
      if (made.op != BP_OP_LAYER_NORM && made.op != BP_OP_RMS_NORM) continue;
      if (row.x.size() != 3) continue;
      made.layout = "inplace_dense";
      for (TensorArgument& argument : made.tensors) {
        if (argument.name == "y") argument.alias = "x";
      }
      cases.push_back(std::move(made));
    }
  }
}

}  // namespace

void add_layer_norm(OpCases& cases) {
  for (const Norm norm : {Norm::kLayer, Norm::kRms}) {
    for (const bp_dtype dtype : kFloats) {
      add_rows(cases, norm, dtype, "random", kRandom);
      // The variance is small compared with the square of the mean.
      const double spread = is_smoke_dtype(dtype) ? 1 : 100;
      add_rows(cases, norm, dtype, "range", {FillKind::kUniform, 1000 - spread, 1000 + spread});
    }
  }
}

}  // namespace bp::conformance
