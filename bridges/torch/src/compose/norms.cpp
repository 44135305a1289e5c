// Normalization: layer, RMS, batch and group norm, and their gradients.
#include "compose.h"

namespace bpt {
namespace {

// PyTorch keeps the axes of the statistics, with extent 1.
std::vector<int64_t> kept_axes(const Tensor& x, size_t normalized) {
  std::vector<int64_t> shape = x.sizes().vec();
  std::fill(shape.end() - static_cast<int64_t>(normalized), shape.end(), 1);
  return shape;
}

// The library has none of these axes.
Tensor statistics(const Tensor& kept, const Tensor& x, size_t normalized, at::ScalarType type) {
  return kept.reshape(x.sizes().slice(0, x.dim() - normalized)).to(type);
}

// f16 and bf16 have their statistics in f32.
at::ScalarType acc(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, IntArrayRef normalized,
                                              const OptionalTensor& gamma,
                                              const OptionalTensor& beta, double eps) {
  Call call("layer_norm");
  call.in("x", x).in_if("gamma", gamma).in_if("beta", beta).want("mean").want("rstd");
  call.set("normalized_ndim", normalized.size()).set("eps", eps);
  const auto outs = call.run();
  const auto shape = kept_axes(x, normalized.size());
  return {outs[0], outs[1].view(shape).to(x.scalar_type()),
          outs[2].view(shape).to(x.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x,
                                                       IntArrayRef normalized, const Tensor& mean,
                                                       const Tensor& rstd,
                                                       const OptionalTensor& gamma,
                                                       const OptionalTensor&,
                                                       std::array<bool, 3> mask) {
  const size_t count = normalized.size();
  Call call("layer_norm_backward");
  call.in("grad_y", grad).in("x", x).in_if("gamma", gamma).set("normalized_ndim", count);
  call.in("mean", statistics(mean, x, count, acc(x)))
      .in("rstd", statistics(rstd, x, count, acc(x)));
  if (mask[1]) call.want("grad_gamma");
  if (mask[2]) call.want("grad_beta");
  const auto outs = call.run();
  return {mask[0] ? outs[0] : Tensor(), mask[1] ? outs[1] : Tensor(),
          mask[2] ? outs[mask[1] ? 2 : 1] : Tensor()};
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, IntArrayRef normalized,
                                    const OptionalTensor& gamma, std::optional<double> eps) {
  const double smallest = x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                         : std::numeric_limits<float>::epsilon();
  Call call("rms_norm");
  call.in("x", x).in_if("gamma", gamma).want("rstd");
  call.set("normalized_ndim", normalized.size()).set("eps", eps.value_or(smallest));
  const auto outs = call.run();
  return {outs[0], outs[1].view(kept_axes(x, normalized.size()))};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& x,
                                             IntArrayRef normalized, const Tensor& rstd,
                                             const OptionalTensor& gamma,
                                             std::array<bool, 2> mask) {
  const size_t count = normalized.size();
  Call call("rms_norm_backward");
  call.in("grad_y", grad).in("x", x).in_if("gamma", gamma).set("normalized_ndim", count);
  call.in("rstd", statistics(rstd, x, count, acc(x)));
  if (mask[1]) call.want("grad_gamma");
  const auto outs = call.run();
  return {mask[0] ? outs[0] : Tensor(), mask[1] ? outs[1] : Tensor()};
}

// running = (1 - momentum) * running + momentum * fresh.
void follow(const OptionalTensor& running, const Tensor& fresh, double momentum) {
  if (!running || !running->defined()) return;
  Tensor target = *running;
  target.lerp_(fresh.to(target.scalar_type()), momentum);
}

OptionalTensor like(const OptionalTensor& tensor, const Tensor& x) {
  if (!tensor || !tensor->defined()) return std::nullopt;
  return tensor->to(x.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_trained(const Tensor& x, const OptionalTensor& gamma,
                                                      const OptionalTensor& beta,
                                                      const OptionalTensor& running_mean,
                                                      const OptionalTensor& running_var,
                                                      double momentum, double eps) {
  Call call("batch_norm_training");
  call.in("x", x).in_if("gamma", like(gamma, x)).in_if("beta", like(beta, x)).set("eps", eps);
  call.want("mean").want("variance");
  const auto outs = call.run(x);
  const double count = static_cast<double>(x.numel() / x.size(1));
  follow(running_mean, outs[1], momentum);
  if (running_var && running_var->defined()) {
    follow(running_var, at::mul(outs[2], count / (count - 1)), momentum);
  }
  return {outs[0], outs[1], at::rsqrt(at::add(outs[2], eps))};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const OptionalTensor& gamma,
                                              const OptionalTensor& beta,
                                              const OptionalTensor& running_mean,
                                              const OptionalTensor& running_var, bool is_training,
                                              double momentum, double eps) {
  require(x.dim() >= 2, "batch norm takes two axes or more");
  if (is_training) {
    return batch_norm_trained(x, gamma, beta, running_mean, running_var, momentum, eps);
  }
  require(running_mean && running_var, "batch norm needs running statistics outside of training");
  Call call("batch_norm_inference");
  call.in("x", x).in("mean", running_mean->to(acc(x))).in("variance", running_var->to(acc(x)));
  call.in_if("gamma", like(gamma, x)).in_if("beta", like(beta, x)).set("eps", eps);
  const Tensor none = at::empty({0}, x.options().dtype(acc(x)));
  return {call.run_one(x), none, none};
}

// What AOTAutograd makes of native_batch_norm.
std::tuple<Tensor, Tensor, Tensor> batch_norm_legit(const Tensor& x, const OptionalTensor& gamma,
                                                    const OptionalTensor& beta,
                                                    Tensor& running_mean, Tensor& running_var,
                                                    bool is_training, double momentum, double eps) {
  return batch_norm(x, gamma, beta, running_mean, running_var, is_training, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_no_stats(const Tensor& x, const OptionalTensor& gamma,
                                                       const OptionalTensor& beta, bool is_training,
                                                       double momentum, double eps) {
  return batch_norm(x, gamma, beta, std::nullopt, std::nullopt, is_training, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_no_training(
    const Tensor& x, const OptionalTensor& gamma, const OptionalTensor& beta,
    const Tensor& running_mean, const Tensor& running_var, double momentum, double eps) {
  return batch_norm(x, gamma, beta, running_mean, running_var, false, momentum, eps);
}

// The gradient outside of training: the statistics are constants.
std::tuple<Tensor, Tensor, Tensor> batch_norm_fixed_backward(const Tensor& grad, const Tensor& x,
                                                             const OptionalTensor& gamma,
                                                             const Tensor& mean,
                                                             const Tensor& variance, double eps,
                                                             std::array<bool, 3> mask) {
  std::vector<int64_t> channel(x.dim(), 1), others{0};
  channel[1] = -1;
  for (int64_t axis = 2; axis < x.dim(); ++axis) others.push_back(axis);
  const Tensor rstd = at::rsqrt(at::add(variance, eps));
  Tensor scale = gamma && gamma->defined() ? at::mul(rstd, *gamma) : rstd;
  Tensor grad_x, grad_gamma, grad_beta;
  if (mask[0]) grad_x = at::mul(grad, scale.reshape(channel).to(grad.scalar_type()));
  if (mask[1]) {
    const Tensor unit = at::mul(at::sub(x, mean.reshape(channel)), rstd.reshape(channel));
    grad_gamma = at::sum(at::mul(grad, unit), others);
  }
  if (mask[2]) grad_beta = at::sum(grad, others);
  return {grad_x, grad_gamma, grad_beta};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(const Tensor& grad, const Tensor& x,
                                                       const OptionalTensor& gamma,
                                                       const OptionalTensor& running_mean,
                                                       const OptionalTensor& running_var,
                                                       const OptionalTensor& mean,
                                                       const OptionalTensor& rstd, bool is_training,
                                                       double eps, std::array<bool, 3> mask) {
  if (!is_training) {
    require(running_mean && running_var, "batch norm needs running statistics outside of training");
    return batch_norm_fixed_backward(grad, x, gamma, *running_mean, *running_var, eps, mask);
  }
  require(mean && rstd, "the gradient of batch norm needs the statistics of the batch");
  // PyTorch keeps 1 / sqrt(variance + eps), and the op takes the variance.
  const Tensor variance = at::sub(at::reciprocal(at::square(*rstd)), eps);
  Call call("batch_norm_training_backward");
  call.in("grad_y", grad).in("x", x).in_if("gamma", like(gamma, x)).set("eps", eps);
  call.in("mean", *mean).in("variance", variance);
  if (mask[1]) call.want("grad_gamma");
  if (mask[2]) call.want("grad_beta");
  const auto outs = call.run(x);
  return {mask[0] ? outs[0] : Tensor(), mask[1] ? outs[1] : Tensor(),
          mask[2] ? outs[mask[1] ? 2 : 1] : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> group_norm(const Tensor& x, const OptionalTensor& gamma,
                                              const OptionalTensor& beta, int64_t, int64_t, int64_t,
                                              int64_t groups, double eps) {
  Call call("group_norm");
  call.in("x", x).in_if("gamma", like(gamma, x)).in_if("beta", like(beta, x));
  call.set("groups", groups).set("eps", eps).want("mean").want("rstd");
  const auto outs = call.run();
  return {outs[0], outs[1].to(x.scalar_type()), outs[2].to(x.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_backward(const Tensor& grad, const Tensor& x,
                                                       const Tensor& mean, const Tensor& rstd,
                                                       const OptionalTensor& gamma, int64_t,
                                                       int64_t, int64_t, int64_t,
                                                       std::array<bool, 3> mask) {
  Call call("group_norm_backward");
  call.in("grad_y", grad).in("x", x).in_if("gamma", like(gamma, x));
  call.in("mean", mean.to(acc(x))).in("rstd", rstd.to(acc(x)));
  if (mask[1]) call.want("grad_gamma");
  if (mask[2]) call.want("grad_beta");
  const auto outs = call.run();
  return {mask[0] ? outs[0] : Tensor(), mask[1] ? outs[1] : Tensor(),
          mask[2] ? outs[mask[1] ? 2 : 1] : Tensor()};
}

}  // namespace

void compose_norms() {
  compose("native_layer_norm", &layer_norm);
  compose("native_layer_norm_backward", &layer_norm_backward);
  compose("_fused_rms_norm", &rms_norm);
  compose("_fused_rms_norm_backward", &rms_norm_backward);
  compose("native_batch_norm", &batch_norm);
  compose("_native_batch_norm_legit", &batch_norm_legit);
  compose("_native_batch_norm_legit.no_stats", &batch_norm_no_stats);
  compose("_native_batch_norm_legit_no_training", &batch_norm_no_training);
  compose("native_batch_norm_backward", &batch_norm_backward);
  compose("native_group_norm", &group_norm);
  compose("native_group_norm_backward", &group_norm_backward);
}

}  // namespace bpt
