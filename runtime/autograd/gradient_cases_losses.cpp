// The cases of losses between elements, of nll_loss, and of norms over channels.
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

Tensor targets(const std::vector<int64_t>& values) {
  return from_host<int64_t>(values, {static_cast<int64_t>(values.size())});
}

// Half of the distances of the samples are longer than this.
constexpr double kWidth = 0.7;

}  // namespace

std::vector<GradientCase> loss_gradient_cases() {
  constexpr auto kNone = Reduction::kNone, kSum = Reduction::kSum;
  return {
      {"mse_loss", {{2, 3}, {2, 3}}, [](Inputs x) { return mse_loss(x[0], x[1]); }},
      {"mse_loss, elements", {{4}, {4}}, [](Inputs x) { return mse_loss(x[0], x[1], kNone); }},
      {"l1_loss", {{2, 3}, {2, 3}}, [](Inputs x) { return l1_loss(x[0], x[1]); }},
      {"l1_loss, sum", {{4}, {4}}, [](Inputs x) { return l1_loss(x[0], x[1], kSum); }},
      {"smooth_l1_loss",
       {{2, 4}, {2, 4}},
       [](Inputs x) { return smooth_l1_loss(x[0], x[1], kWidth); }},
      {"smooth_l1_loss, elements",
       {{8}, {8}},
       [](Inputs x) { return smooth_l1_loss(x[0], x[1], kWidth, kNone); }},
      {"huber_loss", {{2, 4}, {2, 4}}, [](Inputs x) { return huber_loss(x[0], x[1], kWidth); }},
      {"huber_loss, sum",
       {{8}, {8}},
       [](Inputs x) { return huber_loss(x[0], x[1], kWidth, kSum); }},
      {"bce_with_logits_loss",
       {{2, 3}, {2, 3}},
       [](Inputs x) { return bce_with_logits_loss(x[0] - 1, x[1]); }},
      {"bce_with_logits_loss, weights",
       {{2, 3}, {2, 3}, {2, 3}, {2, 3}},
       [](Inputs x) { return bce_with_logits_loss(x[0] - 1, x[1], x[2], x[3], kNone); }},
      {"bce_with_logits_loss, weight of all classes",
       {{4}, {4}, {4}},
       [](Inputs x) { return bce_with_logits_loss(x[0] - 1, x[1], x[2], {}, kSum); }},
      {"bce_with_logits_loss, weight of one class",
       {{2, 3}, {2, 3}, {3}},
       [](Inputs x) {
         return bce_with_logits_loss(x[0] - 1, x[1], {}, x[2].expand({2, 3}));
       }},
      {"kl_div_loss", {{2, 3}, {2, 3}}, [](Inputs x) { return kl_div_loss(x[0] - 2, x[1]); }},
      {"kl_div_loss, elements",
       {{4}, {4}},
       [](Inputs x) { return kl_div_loss(x[0] - 2, x[1], kNone); }},
      {"nll_loss",
       {{3, 4}},
       [](Inputs x) {
         return nll_loss(x[0], targets({1, -100, 3}));
       }},
      {"nll_loss, rows",
       {{3, 4}},
       [](Inputs x) {
         return nll_loss(x[0], targets({0, 2, 2}), 2, kNone);
       }},
      {"nll_loss, clamped",
       {{3, 4}},
       [](Inputs x) {
         return nll_loss(x[0], targets({7, -5, 1}), -100, kSum, Bounds::kClamp);
       }},
  };
}

// Takes grad_y, x and gamma, which may be missing, and mixes all gradients into one number.
Tensor mixed_group_norm_backward(Inputs x, int64_t groups) {
  const Tensor gamma = x.size() > 2 ? x[2] : Tensor();
  Tensor mean, rstd, grad_gamma, grad_beta;
  group_norm(x[1], groups, gamma, {}, 1e-3, &mean, &rstd);
  const Tensor grad_x = group_norm_backward(x[0], x[1], mean, rstd, gamma, 1e-3,
                                            gamma ? &grad_gamma : nullptr, &grad_beta);
  return gamma ? gradient_mix({grad_x, grad_gamma, grad_beta}) : gradient_mix({grad_x, grad_beta});
}

Tensor mixed_batch_norm_training_backward(Inputs x) {
  const Tensor gamma = x.size() > 2 ? x[2] : Tensor();
  Tensor mean, variance, grad_gamma, grad_beta;
  batch_norm_training(x[1], gamma, {}, 1e-3, &mean, &variance);
  const Tensor grad_x = batch_norm_training_backward(x[0], x[1], mean, variance, gamma, 1e-3,
                                                     gamma ? &grad_gamma : nullptr, &grad_beta);
  return gamma ? gradient_mix({grad_x, grad_gamma, grad_beta}) : gradient_mix({grad_x, grad_beta});
}

std::vector<GradientCase> channel_norm_gradient_cases() {
  return {
      {"group_norm",
       {{2, 4, 3}, {4}, {4}},
       [](Inputs x) { return group_norm(x[0], 2, x[1], x[2], 1e-3); }},
      {"group_norm, of instances without gamma and beta",
       {{2, 2, 2, 2}},
       [](Inputs x) { return group_norm(x[0], 2, {}, {}, 1e-3); }},
      {"group_norm, gamma alone",
       {{3, 4}, {4}},
       [](Inputs x) { return group_norm(x[0], 1, x[1], {}, 1e-3); }},
      {"group_norm, beta alone",
       {{2, 2, 3}, {2}},
       [](Inputs x) { return group_norm(x[0], 1, {}, x[1], 1e-3); }},
      {"instance_norm",
       {{2, 3, 4}, {3}, {3}},
       [](Inputs x) { return instance_norm(x[0], x[1], x[2], 1e-3); }},
      {"instance_norm, without gamma and beta",
       {{2, 2, 2, 2}},
       [](Inputs x) { return instance_norm(x[0], {}, {}, 1e-3); }},
      {"batch_norm_inference",
       {{2, 3, 2}, {3}, {3}, {3}, {3}},
       [](Inputs x) { return batch_norm_inference(x[0], x[1], x[2], x[3], x[4], 1e-3); }},
      {"batch_norm_inference, without gamma and beta",
       {{3, 2}, {2}, {2}},
       [](Inputs x) { return batch_norm_inference(x[0], x[1], x[2], {}, {}, 1e-3); }},
      {"batch_norm_training",
       {{3, 2, 2}, {2}, {2}},
       [](Inputs x) { return batch_norm_training(x[0], x[1], x[2], 1e-3); }},
      {"batch_norm_training, without gamma and beta",
       {{2, 2, 2, 2}},
       [](Inputs x) { return batch_norm_training(x[0], {}, {}, 1e-3); }},
      {"batch_norm_training, gamma alone",
       {{4, 3}, {3}},
       [](Inputs x) { return batch_norm_training(x[0], x[1], {}, 1e-3); }},
      {"group_norm_backward",
       {{2, 4, 2}, {2, 4, 2}, {4}},
       [](Inputs x) { return mixed_group_norm_backward(x, 2); }},
      {"group_norm_backward, without gamma",
       {{2, 2, 3}, {2, 2, 3}},
       [](Inputs x) { return mixed_group_norm_backward(x, 2); }},
      {"batch_norm_training_backward",
       {{2, 2, 2}, {2, 2, 2}, {2}},
       mixed_batch_norm_training_backward},
      {"batch_norm_training_backward, without gamma",
       {{3, 2}, {3, 2}},
       mixed_batch_norm_training_backward},
  };
}

}  // namespace bp
