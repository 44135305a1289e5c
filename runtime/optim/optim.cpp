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

template <typename Options>
void check_adam_options(const char* optimizer, const Options& options) {
  check_at_least(optimizer, "eps", options.eps, 0);
  check_at_least(optimizer, "weight_decay", options.weight_decay, 0);
  check_below_one(optimizer, "beta1", options.beta1);
  check_below_one(optimizer, "beta2", options.beta2);
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

// ---- Optimizers with averages -------------------------------------------------------------------

AveragingOptimizer::AveragingOptimizer(const char* name, std::vector<Tensor> parameters, double lr,
                                       std::vector<std::string> averages)
    : Optimizer(std::move(parameters)), name_(name), lr_(lr), step_counts_(parameters_.size()) {
  check_at_least(name, "lr", lr, 0);
  for (std::string& average : averages) {
    averages_.push_back({std::move(average), zeros_like_all(parameters_)});
  }
}

AveragingOptimizer::Group AveragingOptimizer::group_of(const std::vector<size_t>& indices) const {
  Group group{pick(parameters_, indices), gradients(parameters_, indices), {}};
  for (const Average& average : averages_) group.averages.push_back(pick(average.tensors, indices));
  return group;
}

void AveragingOptimizer::step() {
  const NoGradGuard no_grad;
  for (const auto& [step, indices] : next_steps(parameters_, step_counts_)) {
    update(group_of(indices), lr_, step);
  }
}

void AveragingOptimizer::step(const Tensor& lr, const Tensor& step) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad()) continue;
    indices.push_back(i);
    const int64_t count = step_counts_[i], first = step_counts_[indices[0]];
    if (count == first) continue;
    throw Error(BP_INVALID_ARGUMENT,
                std::string(name_) + ": parameter " + std::to_string(i) + " has taken " +
                    std::to_string(count) + " steps, and parameter " + std::to_string(indices[0]) +
                    " " + std::to_string(first) + "; allowed with a step in a tensor: one number");
  }
  if (indices.empty()) return;
  const NoGradGuard no_grad;
  update(group_of(indices), lr, step);
}

void AveragingOptimizer::count_steps(int64_t count) {
  check_at_least(name_, "count", static_cast<double>(count), 0);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].grad()) step_counts_[i] += count;
  }
}

void AveragingOptimizer::set_lr(double lr) {
  check_at_least(name_, "lr", lr, 0);
  lr_ = lr;
}

TensorMap AveragingOptimizer::state_dict() const {
  TensorMap state;
  for (const Average& average : averages_) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      state[average.name + "." + std::to_string(i)] = average.tensors[i];
    }
  }
  state["step_counts"] = from_host<int64_t>(
      step_counts_, {static_cast<int64_t>(step_counts_.size())}, parameters_[0].device());
  return state;
}

void AveragingOptimizer::load_state_dict(const TensorMap& state) {
  const auto refuse = [this](const std::string& text) {
    throw Error(BP_INVALID_ARGUMENT, std::string(name_) + ": " + text);
  };
  const TensorMap own = state_dict();
  if (state.size() != own.size()) {
    refuse("the state has " + std::to_string(state.size()) + " tensors; allowed: the " +
           std::to_string(own.size()) + " of state_dict()");
  }
  for (const auto& [key, tensor] : own) {
    const auto found = state.find(key);
    if (found == state.end()) refuse("the state has no '" + key + "'");
    if (!(found->second.shape() == tensor.shape()) || found->second.dtype() != tensor.dtype()) {
      refuse("'" + key + "' is " + dtype_text(found->second.dtype()) + " " +
             to_string(found->second.shape()) + "; allowed: " + dtype_text(tensor.dtype()) + " " +
             to_string(tensor.shape()));
    }
  }
  std::vector<int64_t> step_counts = state.at("step_counts").to_vector<int64_t>();
  if (const auto least = std::ranges::min_element(step_counts); *least < 0) {
    refuse("'step_counts' has " + std::to_string(*least) + "; allowed: 0 and above");
  }
  const NoGradGuard no_grad;
  for (const Average& average : averages_) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& saved = state.at(average.name + "." + std::to_string(i));
      average.tensors[i].copy_from(saved.to(parameters_[i].device()));
    }
  }
  step_counts_ = std::move(step_counts);
}

AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : AveragingOptimizer("AdamW", std::move(parameters), options.lr, {"exp_avg", "exp_avg_sq"}),
      options_(options) {
  check_adam_options("AdamW", options);
}

void AdamW::update(const Group& group, const Operand& lr, const Operand& step) {
  adamw_step(group.parameters, group.gradients, group.averages[0], group.averages[1], lr, step,
             options_.beta1, options_.beta2, options_.eps, options_.weight_decay);
}

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options)
    : AveragingOptimizer("Adam", std::move(parameters), options.lr, {"exp_avg", "exp_avg_sq"}),
      options_(options) {
  check_adam_options("Adam", options);
}

void Adam::update(const Group& group, const Operand& lr, const Operand& step) {
  adam_step(group.parameters, group.gradients, group.averages[0], group.averages[1], lr, step,
            options_.beta1, options_.beta2, options_.eps, options_.weight_decay);
}

Lion::Lion(std::vector<Tensor> parameters, const LionOptions& options)
    : AveragingOptimizer("Lion", std::move(parameters), options.lr, {"exp_avg"}),
      options_(options) {
  check_at_least("Lion", "weight_decay", options.weight_decay, 0);
  check_below_one("Lion", "beta1", options.beta1);
  check_below_one("Lion", "beta2", options.beta2);
}

void Lion::update(const Group& group, const Operand& lr, const Operand& /*step*/) {
  lion_step(group.parameters, group.gradients, group.averages[0], lr, options_.beta1,
            options_.beta2, options_.weight_decay);
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
  Tensor norm = sqrt(squares);
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
