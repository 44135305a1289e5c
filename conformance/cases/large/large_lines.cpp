// Large calls of reductions, softmax, norms and losses.
#include <algorithm>
#include <iterator>

#include "conformance/cases/large/large_builder.hpp"
#include "conformance/reference/reductions.hpp"

namespace bp::conformance {
namespace {

// Products of 65,565 of these numbers stay in the range of f32.
constexpr Fill kNearOne{FillKind::kLogUniform, -0.004, 0.004};

void add_reduction(Builder& b) {
  const auto row = std::ranges::find(reductions::kRows, b.op(), &reductions::Row::op);
  const bool gives_index = row == std::end(reductions::kRows);  // It is argmax or argmin.
  const bool counts = !gives_index && row->counts;
  const bool gives_bool = counts && !row->gives_i64;
  const bool gives_i64 = gives_index || (row->gives_i64 && (counts || !is_float(b.dtype())));
  const bp_dtype result = gives_bool ? BP_BOOL : gives_i64 ? BP_I64 : 0;
  const bool multiplies = !gives_index && row->multiplies && is_float(b.dtype());
  const Fill numbers = counts ? kRepeat : multiplies ? kNearOne : kRandom;
  const auto add = [&](const Plane& plane, int64_t axis, Fill fill) {
    const auto kept = static_cast<size_t>(1 - axis);
    b.start(plane.name, plane.tier).in("x", plane.period, plane.large, fill);
    b.out("y", {plane.period[kept]}, {plane.large[kept]}, result);
    if (gives_index) b.set("axis", axis);
    if (!gives_index) b.set("axes", Shape{axis});
    b.set("keepdims", int64_t{0});
  };
  for (const Plane& plane : kLines) add(plane, 1, numbers);
  add({"columns", {17, 1031}, {17, kRows}, Tier::kSmoke}, 0, numbers);
  add({"long_columns", {8209, 3}, {8209, 131}, Tier::kQuick}, 0, numbers);
  add({"column", {kAbove16, 3}, {kAbove16, 3}, Tier::kQuick}, 0, numbers);
}

void add_scan(Builder& b) {
  const bool multiplies = b.op() == BP_OP_CUMPROD && is_float(b.dtype());
  const bp_dtype result = is_float(b.dtype()) ? 0 : BP_I64;
  const auto add = [&](const Plane& plane, int64_t axis) {
    b.start(plane.name, plane.tier);
    b.in("x", plane.period, plane.large, multiplies ? kNearOne : kRandom);
    b.out("y", plane.period, plane.large, result);
    b.set("axis", axis).set("is_exclusive", int64_t{0}).set("is_reverse", int64_t{0});
  };
  for (const Plane& plane : kLines) add(plane, 1);
  add({"columns", {17, 1031}, {17, kRows}, Tier::kSmoke}, 0);
  add({"column", {kAbove16, 3}, {kAbove16, 3}, Tier::kQuick}, 0);
}

void add_softmax(Builder& b) {
  for (const Plane& plane : kLines) {
    b.start(plane.name, plane.tier).in("x", plane.period, plane.large, {FillKind::kUniform, -4, 4});
    b.out("y", plane.period, plane.large).set("axis", int64_t{1});
  }
  b.start("columns", Tier::kQuick).in("x", {17, 1031}, {17, kRows}, {FillKind::kUniform, -4, 4});
  b.out("y", {17, 1031}, {17, kRows}).set("axis", int64_t{0});
}

void add_softmax_backward(Builder& b) {
  for (const Plane& plane : kLines) {
    b.start(plane.name, plane.tier).in("grad_y", plane.period, plane.large);
    b.in("y", plane.period, plane.large, {FillKind::kUniform, -4, 4});
    b.out("grad_x", plane.period, plane.large).set("axis", int64_t{1});
  }
}

bool has_mean(const Builder& b) {
  return b.op() == BP_OP_LAYER_NORM || b.op() == BP_OP_LAYER_NORM_BACKWARD;
}

void add_norm(Builder& b) {
  for (const Plane& plane : kLines) {
    const Shape width = {plane.period[1]}, rows = {plane.period[0]}, large = {plane.large[0]};
    b.start(plane.name, plane.tier).in("x", plane.period, plane.large).in("gamma", width, width);
    if (has_mean(b)) b.in("beta", width, width);
    b.out("y", plane.period, plane.large);
    if (has_mean(b)) b.out("mean", rows, large, accumulator_of(b.dtype()));
    b.out("rstd", rows, large, accumulator_of(b.dtype()));
    b.set("normalized_ndim", int64_t{1}).set("eps", 1e-5);
  }
}

// The gradients of the weights are sums over all rows, and do not repeat.
void add_norm_backward(Builder& b) {
  for (const Plane& plane : kLines) {
    const Shape width = {plane.period[1]}, rows = {plane.period[0]}, large = {plane.large[0]};
    b.start(plane.name, plane.tier).in("grad_y", plane.period, plane.large);
    b.in("x", plane.period, plane.large).in("gamma", width, width);
    if (has_mean(b)) b.in("mean", rows, large, {}, accumulator_of(b.dtype()));
    b.in("rstd", rows, large, {}, accumulator_of(b.dtype()));
    b.out("grad_x", plane.period, plane.large);
    b.set("normalized_ndim", int64_t{1}).set("eps", 1e-5);
  }
}

void add_cross_entropy(Builder& b) {
  const bool is_backward = b.op() == BP_OP_CROSS_ENTROPY_BACKWARD;
  for (const Plane& plane : kLines) {
    const Shape rows = {plane.period[0]}, large = {plane.large[0]};
    b.start(plane.name, plane.tier);
    if (is_backward) b.in("grad_y", rows, large);
    b.in("x", plane.period, plane.large, {FillKind::kUniform, -4, 4});
    b.indices("target", rows, large, plane.period[1], plane.period[1]);
    if (is_backward) b.in("lse", rows, large, {}, accumulator_of(b.dtype()));
    b.out(is_backward ? "grad_x" : "y", is_backward ? plane.period : rows,
          is_backward ? plane.large : large);
    b.set("ignore_index", int64_t{-100}).set("label_smoothing", 0.1);
    b.set("reduction", int64_t{BP_CROSS_ENTROPY_REDUCTION_NONE});
  }
}

constexpr LargeOp kOps[] = {
    {BP_OP_ARGMAX, add_reduction},
    {BP_OP_ARGMIN, add_reduction},
    {BP_OP_CUMSUM, add_scan},
    {BP_OP_CUMPROD, add_scan},
    {BP_OP_SOFTMAX, add_softmax},
    {BP_OP_LOG_SOFTMAX, add_softmax},
    {BP_OP_SOFTMAX_BACKWARD, add_softmax_backward},
    {BP_OP_LOG_SOFTMAX_BACKWARD, add_softmax_backward},
    {BP_OP_LAYER_NORM, add_norm},
    {BP_OP_RMS_NORM, add_norm},
    {BP_OP_LAYER_NORM_BACKWARD, add_norm_backward},
    {BP_OP_RMS_NORM_BACKWARD, add_norm_backward},
    {BP_OP_CROSS_ENTROPY, add_cross_entropy},
    {BP_OP_CROSS_ENTROPY_BACKWARD, add_cross_entropy},
};

}  // namespace

std::span<const LargeOp> large_line_ops() {
  static const std::vector<LargeOp> ops = [] {
    std::vector<LargeOp> made(std::begin(kOps), std::end(kOps));
    for (const reductions::Row& row : reductions::kRows) made.push_back({row.op, add_reduction});
    return made;
  }();
  return ops;
}

}  // namespace bp::conformance
