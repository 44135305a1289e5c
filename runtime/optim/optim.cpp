#include "backplane/runtime/optim.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/ops.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp {
namespace {

void check_at_least(const char* optimizer, const char* option, double value, double least) {
  if (value >= least) return;
  throw Error(BP_INVALID_ARGUMENT, std::string(optimizer) + ": " + option + " is " +
                                       short_text(value) + "; allowed: from " + short_text(least));
}

void check_below_one(const char* optimizer, const char* option, double value) {
  if (value >= 0 && value < 1) return;
  throw Error(BP_INVALID_ARGUMENT, std::string(optimizer) + ": " + option + " is " +
                                       short_text(value) + "; allowed: 0 <= " + option + " < 1");
}

std::vector<Tensor> zeros_like_all(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> zeros;
  zeros.reserve(tensors.size());
  for (const Tensor& tensor : tensors) zeros.push_back(zeros_like(tensor));
  return zeros;
}

// Counts a step for each parameter with a gradient, and groups these parameters by their number of
// steps. One call of the op serves a group. Mostly there is one group.
std::map<int64_t, std::vector<size_t>> next_steps(const std::vector<Tensor>& parameters,
                                                  std::vector<int64_t>& step_counts) {
  std::map<int64_t, std::vector<size_t>> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].grad()) groups[++step_counts[i]].push_back(i);
  }
  return groups;
}

std::vector<Tensor> pick(const std::vector<Tensor>& all, const std::vector<size_t>& indices) {
  std::vector<Tensor> some;
  if (all.empty()) return some;
  for (const size_t i : indices) some.push_back(all[i].detach());
  return some;
}

std::vector<Tensor> gradients(const std::vector<Tensor>& all, const std::vector<size_t>& indices) {
  std::vector<Tensor> some;
  some.reserve(indices.size());
  for (const size_t i : indices) some.push_back(all[i].grad().detach());
  return some;
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {
  if (parameters_.empty()) {
    throw Error(BP_INVALID_ARGUMENT,
                "Optimizer: the list of parameters is empty; pass model.parameters()");
  }
  std::set<const detail::TensorImpl*> seen;
  for (const Tensor& tensor : parameters_) {
    if (!tensor.is_leaf() || !tensor.requires_grad()) {
      throw Error(BP_INVALID_ARGUMENT,
                  "Optimizer: a parameter is not a leaf that requires a gradient");
    }
    if (!seen.insert(tensor.impl()).second) {
      throw Error(BP_INVALID_ARGUMENT,
                  "Optimizer: a parameter is given twice, and would be updated twice in a step");
    }
  }
}

void Optimizer::zero_grad() {
  for (const Tensor& tensor : parameters_) tensor.set_grad({});
}

Sgd::Sgd(std::vector<Tensor> parameters, const SgdOptions& options)
    : Optimizer(std::move(parameters)), options_(options), step_counts_(parameters_.size()) {
  check_at_least("Sgd", "lr", options.lr, 0);
  check_at_least("Sgd", "momentum", options.momentum, 0);
  check_at_least("Sgd", "weight_decay", options.weight_decay, 0);
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0)) {
    throw Error(BP_INVALID_ARGUMENT, "Sgd: nesterov needs momentum above 0 and dampening 0");
  }
  if (options.momentum != 0) momentum_buffers_ = zeros_like_all(parameters_);
}

void Sgd::step() {
  const NoGradGuard no_grad;
  for (const auto& [step, indices] : next_steps(parameters_, step_counts_)) {
    sgd_step(pick(parameters_, indices), gradients(parameters_, indices),
             pick(momentum_buffers_, indices), options_.lr, step, options_.momentum,
             options_.dampening, options_.weight_decay, options_.nesterov ? 1 : 0);
  }
}

AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : Optimizer(std::move(parameters)),
      options_(options),
      exp_avg_(zeros_like_all(parameters_)),
      exp_avg_sq_(zeros_like_all(parameters_)),
      step_counts_(parameters_.size()) {
  check_at_least("AdamW", "lr", options.lr, 0);
  check_at_least("AdamW", "eps", options.eps, 0);
  check_at_least("AdamW", "weight_decay", options.weight_decay, 0);
  check_below_one("AdamW", "beta1", options.beta1);
  check_below_one("AdamW", "beta2", options.beta2);
}

void AdamW::step() {
  const NoGradGuard no_grad;
  for (const auto& [step, indices] : next_steps(parameters_, step_counts_)) {
    adamw_step(pick(parameters_, indices), gradients(parameters_, indices), pick(exp_avg_, indices),
               pick(exp_avg_sq_, indices), options_.lr, step, options_.beta1, options_.beta2,
               options_.eps, options_.weight_decay);
  }
}

void AdamW::step(const Tensor& lr, const Tensor& step) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad()) continue;
    indices.push_back(i);
    const int64_t count = step_counts_[i], first = step_counts_[indices[0]];
    if (count == first) continue;
    throw Error(BP_INVALID_ARGUMENT, "AdamW: parameter " + std::to_string(i) + " has taken " +
                                         std::to_string(count) + " steps, and parameter " +
                                         std::to_string(indices[0]) + " " + std::to_string(first) +
                                         "; allowed with a step in a tensor: one number");
  }
  if (indices.empty()) return;
  const NoGradGuard no_grad;
  adamw_step(pick(parameters_, indices), gradients(parameters_, indices), pick(exp_avg_, indices),
             pick(exp_avg_sq_, indices), lr, step, options_.beta1, options_.beta2, options_.eps,
             options_.weight_decay);
}

void AdamW::count_steps(int64_t count) {
  check_at_least("AdamW", "count", static_cast<double>(count), 0);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].grad()) step_counts_[i] += count;
  }
}

void AdamW::set_lr(double lr) {
  check_at_least("AdamW", "lr", lr, 0);
  options_.lr = lr;
}

TensorMap AdamW::state_dict() const {
  TensorMap state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    state["exp_avg." + std::to_string(i)] = exp_avg_[i];
    state["exp_avg_sq." + std::to_string(i)] = exp_avg_sq_[i];
  }
  state["step_counts"] = from_host<int64_t>(
      step_counts_, {static_cast<int64_t>(step_counts_.size())}, parameters_[0].device());
  return state;
}

void AdamW::load_state_dict(const TensorMap& state) {
  const TensorMap own = state_dict();
  if (state.size() != own.size()) {
    throw Error(BP_INVALID_ARGUMENT, "AdamW: the state has " + std::to_string(state.size()) +
                                         " tensors; allowed: the " + std::to_string(own.size()) +
                                         " of state_dict()");
  }
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end()) {
      throw Error(BP_INVALID_ARGUMENT, "AdamW: the state has no '" + name + "'");
    }
    if (!(found->second.shape() == tensor.shape()) || found->second.dtype() != tensor.dtype()) {
      throw Error(BP_INVALID_ARGUMENT,
                  "AdamW: '" + name + "' is " + dtype_text(found->second.dtype()) + " " +
                      to_string(found->second.shape()) +
                      "; allowed: " + dtype_text(tensor.dtype()) + " " + to_string(tensor.shape()));
    }
  }
  std::vector<int64_t> step_counts = state.at("step_counts").to_vector<int64_t>();
  if (const auto least = std::ranges::min_element(step_counts); *least < 0) {
    throw Error(BP_INVALID_ARGUMENT,
                "AdamW: 'step_counts' has " + std::to_string(*least) + "; allowed: 0 and above");
  }
  const NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Device device = parameters_[i].device();
    exp_avg_[i].copy_from(state.at("exp_avg." + std::to_string(i)).to(device));
    exp_avg_sq_[i].copy_from(state.at("exp_avg_sq." + std::to_string(i)).to(device));
  }
  step_counts_ = std::move(step_counts);
}

double CosineSchedule::lr(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (step >= total) return least;
  const double part = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return least + (peak - least) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

namespace {

void check_norm(const char* call, double most) {
  if (most > 0) return;
  throw Error(BP_INVALID_ARGUMENT,
              std::string(call) + ": most is " + short_text(most) + "; allowed: above 0");
}

}  // namespace

Tensor squared_grad_norm(const std::vector<Tensor>& parameters) {
  const NoGradGuard no_grad;
  Tensor total;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = parameter.grad();
    if (!gradient) continue;
    // An f16 cannot hold the square of 256, so narrow floats are squared in f32.
    const bool is_narrow = gradient.dtype() == BP_F16 || gradient.dtype() == BP_BF16;
    const Tensor wide = is_narrow ? gradient.to(BP_F32) : gradient;
    const Tensor square = sum(wide * wide);
    total = total ? total + square : square;
  }
  return total;
}

double clip_grad_norm(const std::vector<Tensor>& parameters, double most) {
  check_norm("clip_grad_norm", most);
  const NoGradGuard no_grad;
  const Tensor total = squared_grad_norm(parameters);
  const double norm = total ? std::sqrt(total.item<double>()) : 0;
  if (norm <= most) return norm;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = parameter.grad();
    if (gradient) mul_out(gradient, gradient, most / norm);
  }
  return norm;
}

Tensor scale_grads_to_norm(const std::vector<Tensor>& parameters, const Tensor& squares,
                           double most) {
  check_norm("scale_grads_to_norm", most);
  const NoGradGuard no_grad;
  const Tensor norm = sqrt(squares);
  // A norm of 0 gives an infinite quotient, which the minimum replaces.
  const Tensor factor = minimum(Scalar(most) / norm, 1.0);
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = parameter.grad();
    if (!gradient) continue;
    if (gradient.dtype() == factor.dtype()) {
      mul_out(gradient, gradient, factor);
    } else {
      gradient.copy_from(gradient.to(factor.dtype()) * factor);
    }
  }
  return norm;
}

Tensor clip_grad_norm_on_device(const std::vector<Tensor>& parameters, double most) {
  check_norm("clip_grad_norm_on_device", most);
  const Tensor squares = squared_grad_norm(parameters);
  return squares ? scale_grads_to_norm(parameters, squares, most) : Tensor();
}

}  // namespace bp
