// Normalisations: over batches, instances, groups, layers and windows of channels.
#include <algorithm>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

struct Moments {
  Tensor mean, variance;  // With the axes that they were taken over, of extent 1.
};

Moments moments_of(const Tensor& x, const Ints& axes) {
  const Tensor means = mean(x, axes, true);
  return {means, mean(square(x - means), axes, true)};
}

Tensor normalized(const Tensor& x, const Moments& moments, double epsilon) {
  return (x - moments.mean) / sqrt(moments.variance + epsilon);
}

Tensor scaled(const Call& call, const Tensor& x, size_t scale, size_t bias) {
  return x * align_axis(call.input(scale), 1, x.ndim()) + align_axis(call.input(bias), 1, x.ndim());
}

Ints axes_of_channels(const Tensor& x) {
  Ints axes = all_axes(x.ndim());
  axes.erase(axes.begin() + std::min<int64_t>(1, x.ndim() - 1));
  return axes;
}

bool is_training(const Call& call) {
  if (call.opset() >= 14) return call.flag("training_mode", false);
  return call.opset() < 7 && !call.flag("is_test", false);
}

// In training the moments are those of the batch, and the running ones move towards them.
Values batch_normalization(const Call& call) {
  const Tensor x = call.input(0);
  if (!call.flag("spatial", true)) {
    call.unsupported("attribute 'spatial' is 0; only moments of whole channels are there");
  }
  const double epsilon = call.number("epsilon", 1e-5);
  const Tensor old_mean = call.input(3), old_variance = call.input(4);
  if (!is_training(call)) {
    const Moments moments{align_axis(old_mean, 1, x.ndim()), align_axis(old_variance, 1, x.ndim())};
    return {scaled(call, normalized(x, moments, epsilon), 1, 2)};
  }
  const Moments moments = moments_of(x, axes_of_channels(x));
  const double momentum = call.number("momentum", 0.9);
  const auto moved = [&](const Tensor& old, const Tensor& now) {
    return old * momentum + now.reshape(old.shape()).to(old.dtype()) * (1 - momentum);
  };
  return {scaled(call, normalized(x, moments, epsilon), 1, 2), moved(old_mean, moments.mean),
          moved(old_variance, moments.variance)};
}

Values instance_normalization(const Call& call) {
  const Tensor x = call.input(0);
  const Moments moments = moments_of(x, all_axes(x.ndim(), 2));
  return {scaled(call, normalized(x, moments, call.number("epsilon", 1e-5)), 1, 2)};
}

// Before opset 21 scale and bias were those of groups, later of channels.
Values group_normalization(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t groups = call.required_integer("num_groups");
  if (groups < 1 || x.ndim() < 2 || x.shape(1) % groups != 0) {
    call.refuse("attribute 'num_groups' is " + std::to_string(groups) +
                ", which does not divide the channels of " + bp::to_string(x.shape()));
  }
  const Tensor grouped = x.reshape({x.shape(0), groups, -1});
  const Tensor y = normalized(grouped, moments_of(grouped, {2}), call.number("epsilon", 1e-5));
  if (call.opset() < 21) return {scaled(call, y, 1, 2).reshape(x.shape())};
  return {scaled(call, y.reshape(x.shape()), 1, 2)};
}

// What the norms over the last axes share: the first of these axes, and their extents.
struct LastAxes {
  int64_t first;
  Ints shape;

  LastAxes(const Call& call, const Tensor& x)
      : first(call.axis(call.integer("axis", -1), x.ndim())),
        shape(x.shape().begin() + first, x.shape().end()) {
    if (call.integer("stash_type", 1) != 1) {
      call.unsupported("attribute 'stash_type' is not 1; moments are f32, or those of f64");
    }
  }
};

Values layer_normalization(const Call& call) {
  const Tensor x = call.input(0);
  const auto& [axis, shape] = LastAxes(call, x);
  const Tensor gamma = call.input(1).expand(shape).contiguous();
  const Tensor beta = call.has(2) ? call.input(2).expand(shape).contiguous() : Tensor();
  Tensor means, rstd;
  const Tensor y =
      layer_norm(x, gamma, beta, x.ndim() - axis, call.number("epsilon", 1e-5), &means, &rstd);
  Ints kept = x.shape().to_vector();
  std::fill(kept.begin() + axis, kept.end(), 1);
  return {y, means.reshape(kept), rstd.reshape(kept)};
}

Values rms_normalization(const Call& call) {
  const Tensor x = call.input(0);
  const auto& [axis, shape] = LastAxes(call, x);
  const Tensor gamma = call.input(1).expand(shape).contiguous();
  return {rms_norm(x, gamma, x.ndim() - axis, call.number("epsilon", 1e-5))};
}

// Each element is divided by a power of the squares of its neighbours among the channels.
Values lrn(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t size = call.required_integer("size");
  if (size < 1) call.refuse("attribute 'size' is " + std::to_string(size));
  const int64_t before = (size - 1) / 2;
  const Tensor squares = pad_axis(square(x), 1, before, size - 1 - before, scalar_like(0, x));
  Tensor total = squares.narrow(1, 0, x.shape(1));
  for (int64_t i = 1; i < size; ++i) total = total + squares.narrow(1, i, x.shape(1));
  const double alpha = call.number("alpha", 1e-4) / static_cast<double>(size);
  return {x / pow(total * alpha + call.number("bias", 1), call.number("beta", 0.75))};
}

Values mean_variance_normalization(const Call& call) {
  const Tensor x = call.input(0);
  const Ints axes = call.axes(call.integers("axes", {0, 2, 3}), x.ndim());
  const Moments moments = moments_of(x, axes);
  return {(x - moments.mean) / (sqrt(moments.variance) + 1e-9)};
}

Values lp_normalization(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t axis = call.axis(call.integer("axis", -1), x.ndim());
  const int64_t p = call.integer("p", 2);
  if (p != 1 && p != 2) call.refuse("attribute 'p' is " + std::to_string(p) + "; allowed: 1, 2");
  const Tensor norm = p == 1 ? sum(abs(x), {axis}, true) : sqrt(sum(square(x), {axis}, true));
  return {keep_where(ne(norm, 0).expand(x.shape()), x / norm)};
}

constexpr OpRow kRows[] = {
    {"BatchNormalization", 1, batch_normalization,
     "epsilon is_test momentum spatial training_mode"},
    {"GroupNormalization", 18, group_normalization, "epsilon num_groups stash_type"},
    {"InstanceNormalization", 1, instance_normalization, "epsilon"},
    {"LRN", 1, lrn, "alpha beta bias size"},
    {"LayerNormalization", 17, layer_normalization, "axis epsilon stash_type", OnnxRoute::kOp},
    {"LpNormalization", 1, lp_normalization, "axis p"},
    {"MeanVarianceNormalization", 9, mean_variance_normalization, "axes"},
    {"RMSNormalization", 23, rms_normalization, "axis epsilon stash_type", OnnxRoute::kOp},
};

}  // namespace

std::span<const OpRow> normalization_ops() { return kRows; }

}  // namespace bp::onnx
