// Fused steps of optimizers, and what mixed precision does to gradients.
#include "compose.h"

namespace bpt {
namespace {

using at::TensorList;

void check_plain(bool amsgrad, bool maximize) {
  TORCH_CHECK_NOT_IMPLEMENTED(!amsgrad && !maximize,
                              "torch_backplane: the fused steps have no amsgrad and maximize. ",
                              "Make the optimizer with fused=False.");
}

// Takes the scale of a GradScaler out of the gradients. Returns false if one of them is not finite:
// then there is no step. The host decides it, so it waits for the device.
bool unscaled(TensorList grads, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  if (found_inf && found_inf->item<float>() != 0) return false;
  if (grad_scale) {
    for (const Tensor& grad : grads) grad.div_(*grad_scale);
  }
  return true;
}

// Tensors of one dtype go in one call: the op has one for all lists.
template <typename Step>
void by_dtype(TensorList params, Step step) {
  std::vector<at::ScalarType> types;
  for (const Tensor& param : params) {
    if (std::find(types.begin(), types.end(), param.scalar_type()) == types.end()) {
      types.push_back(param.scalar_type());
    }
  }
  for (const at::ScalarType type : types) {
    std::vector<size_t> members;
    for (size_t i = 0; i < params.size(); ++i) {
      if (params[i].scalar_type() == type) members.push_back(i);
    }
    step(members);
  }
}

std::vector<Tensor> pick(TensorList list, const std::vector<size_t>& members) {
  std::vector<Tensor> picked;
  for (const size_t i : members) {
    if (i < list.size()) picked.push_back(list[i]);
  }
  return picked;
}

void launch_or_throw(Call& call, const char* name) {
  try {
    call.go();
  } catch (const Unsupported& unsupported) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "torch_backplane: ", name, ": ", unsupported.reason,
                                ". Make the optimizer with fused=False.");
  }
}

void sgd(TensorList params, TensorList grads, TensorList buffers, double weight_decay,
         double momentum, double lr, double dampening, bool nesterov, bool maximize,
         bool is_first_step, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  check_plain(false, maximize);
  if (!unscaled(grads, grad_scale, found_inf)) return;
  by_dtype(params, [&](const std::vector<size_t>& members) {
    const auto own = pick(params, members), own_grads = pick(grads, members);
    const auto own_buffers = pick(buffers, members);
    Call call("sgd_step");
    call.list("params", own).list("grads", own_grads).list("momentum_buffers", own_buffers);
    call.scalar("lr", lr).scalar("step", is_first_step ? 1 : 2).set("momentum", momentum);
    call.set("dampening", dampening).set("weight_decay", weight_decay);
    launch_or_throw(call.set("nesterov", int64_t{nesterov}), "_fused_sgd_");
  });
}

void adam_step(const char* op, TensorList params, TensorList grads, TensorList means,
               TensorList squares, TensorList steps, double lr, double beta1, double beta2,
               double weight_decay, double eps) {
  if (params.empty()) return;
  // Each parameter has its step; an optimizer advances them together. They are f32 of the device.
  const Tensor step = steps[0].to(at::kLong);
  by_dtype(params, [&](const std::vector<size_t>& members) {
    const auto own = pick(params, members), own_grads = pick(grads, members);
    const auto own_means = pick(means, members), own_squares = pick(squares, members);
    Call call(op);
    call.list("params", own).list("grads", own_grads).list("exp_avg", own_means);
    call.list("exp_avg_sq", own_squares).in("step", step).scalar("lr", lr).set("beta1", beta1);
    call.set("beta2", beta2).set("eps", eps).set("weight_decay", weight_decay);
    launch_or_throw(call, op);
  });
}

void adam(TensorList params, TensorList grads, TensorList means, TensorList squares, TensorList,
          TensorList steps, double lr, double beta1, double beta2, double weight_decay, double eps,
          bool amsgrad, bool maximize, const OptionalTensor& grad_scale,
          const OptionalTensor& found_inf) {
  check_plain(amsgrad, maximize);
  if (!unscaled(grads, grad_scale, found_inf)) return;
  adam_step("adam_step", params, grads, means, squares, steps, lr, beta1, beta2, weight_decay, eps);
}

void adamw(TensorList params, TensorList grads, TensorList means, TensorList squares, TensorList,
           TensorList steps, double lr, double beta1, double beta2, double weight_decay, double eps,
           bool amsgrad, bool maximize, const OptionalTensor& grad_scale,
           const OptionalTensor& found_inf) {
  check_plain(amsgrad, maximize);
  if (!unscaled(grads, grad_scale, found_inf)) return;
  adam_step("adamw_step", params, grads, means, squares, steps, lr, beta1, beta2, weight_decay,
            eps);
}

void unscale(TensorList grads, Tensor& found_inf, const Tensor& inverse_scale) {
  by_dtype(grads, [&](const std::vector<size_t>& members) {
    const auto own = pick(grads, members);
    Call call("scale_and_check_finite");
    call.list("xs", own).in("found", found_inf.reshape({})).in("scale", inverse_scale.reshape({}));
    call.go();
  });
}

// The state is one number each, so the host decides.
Tensor& update_scale(Tensor& scale, Tensor& tracker, const Tensor& found_inf, double growth,
                     double backoff, int64_t interval) {
  if (found_inf.item<float>() != 0) {
    scale.mul_(backoff);
    tracker.zero_();
    return scale;
  }
  const int64_t successes = tracker.item<int64_t>() + 1;
  if (successes == interval) {
    const float grown = static_cast<float>(scale.item<float>() * growth);
    if (std::isfinite(grown)) scale.fill_(grown);
    tracker.zero_();
  } else {
    tracker.fill_(successes);
  }
  return scale;
}

}  // namespace

void compose_optimizers() {
  compose("_fused_sgd_", &sgd);
  compose("_fused_adam_", &adam);
  compose("_fused_adamw_", &adamw);
  compose("_amp_foreach_non_finite_check_and_unscale_", &unscale);
  compose("_amp_update_scale_", &update_scale);
}

}  // namespace bpt
