// The cases of normalization, losses and attention. A backward op is given the results of the
// forward op for the same inputs, because its gradients rely on this relation.
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

Tensor targets(const std::vector<int64_t>& values) {
  return from_host<int64_t>(values, {static_cast<int64_t>(values.size())});
}

// Takes grad_y, x and gamma, which may be missing, and mixes all gradients into one number.
Tensor mixed_layer_norm_backward(Inputs x, int64_t ndim) {
  const Tensor gamma = x.size() > 2 ? x[2] : Tensor();
  Tensor mean, rstd, grad_gamma, grad_beta;
  layer_norm(x[1], gamma, {}, ndim, 1e-3, &mean, &rstd);
  const Tensor grad_x = layer_norm_backward(x[0], x[1], mean, rstd, gamma, ndim, 1e-3,
                                            gamma ? &grad_gamma : nullptr, &grad_beta);
  return gamma ? gradient_mix({grad_x, grad_gamma, grad_beta}) : gradient_mix({grad_x, grad_beta});
}

Tensor mixed_rms_norm_backward(Inputs x) {
  const Tensor gamma = x.size() > 2 ? x[2] : Tensor();
  Tensor rstd, grad_gamma;
  rms_norm(x[1], gamma, 1, 1e-3, &rstd);
  const Tensor grad_x =
      rms_norm_backward(x[0], x[1], rstd, gamma, 1, 1e-3, gamma ? &grad_gamma : nullptr);
  return gamma ? gradient_mix({grad_x, grad_gamma}) : grad_x;
}

Tensor seen(IntList shape) { return lt(gradient_sample(shape, 6), 1.2); }

// Takes q, and k and v with as many heads as q. Each two heads of q share one head of k and v.
Tensor grouped_sdpa(Inputs x, Causal causal) { return sdpa(x[0], x[1], x[2], 0.7, {}, {}, causal); }

// Takes grad_y, q, k and v.
Tensor mixed_sdpa_backward(Inputs x, const Tensor& mask, const Tensor& bias, Causal causal) {
  Tensor lse, grad_k, grad_v;
  const Tensor y = sdpa(x[1], x[2], x[3], 0.7, mask, bias, causal, &lse);
  const Tensor grad_q =
      sdpa_backward(x[0], x[1], x[2], x[3], y, lse, 0.7, mask, bias, causal, &grad_k, &grad_v);
  return gradient_mix({grad_q, grad_k, grad_v});
}

// What sdpa has beside masks.
struct AttentionTerms {
  int64_t window_left = 0, window_right = 0;
  double softcap = 0, dropout_p = 0;
};

// Takes q, k, v and, if wanted, sinks.
Tensor sdpa_with(Inputs x, Causal causal, const AttentionTerms& t) {
  return sdpa(x[0], x[1], x[2], 0.7, {}, {}, causal, nullptr, x.size() > 3 ? x[3] : Tensor(),
              t.window_left, t.window_right, t.softcap, t.dropout_p, 11, 3);
}

// Takes grad_y, q, k, v and, if wanted, sinks.
Tensor sdpa_backward_with(Inputs x, Causal causal, const AttentionTerms& t) {
  const Tensor sinks = x.size() > 4 ? x[4] : Tensor();
  Tensor lse, grad_k, grad_v, grad_sinks;
  const Tensor y = sdpa(x[1], x[2], x[3], 0.7, {}, {}, causal, &lse, sinks, t.window_left,
                        t.window_right, t.softcap, t.dropout_p, 11, 3);
  const Tensor grad_q = sdpa_backward(x[0], x[1], x[2], x[3], y, lse, 0.7, {}, {}, causal, &grad_k,
                                      &grad_v, sinks ? &grad_sinks : nullptr, sinks, t.window_left,
                                      t.window_right, t.softcap, t.dropout_p, 11, 3);
  return sinks ? gradient_mix({grad_q, grad_k, grad_v, grad_sinks})
               : gradient_mix({grad_q, grad_k, grad_v});
}

Tensor turn(const Tensor& angles, bool wants_sine) {
  std::vector<double> values = angles.to_vector<double>();
  for (double& value : values) value = wants_sine ? __builtin_sin(value) : __builtin_cos(value);
  return from_host<double>(values, angles.shape());
}

Tensor turned(const Tensor& x, int64_t angle_count, bool is_interleaved, bool is_backward) {
  std::vector<int64_t> shape = x.shape().to_vector();
  shape.back() = angle_count;
  const Tensor angles = gradient_sample(shape, 12);
  const Tensor cosine = turn(angles, false);
  const Tensor sine = turn(angles, true);
  return is_backward ? rope_backward(x, cosine, sine, is_interleaved)
                     : rope(x, cosine, sine, is_interleaved);
}

}  // namespace

std::vector<GradientCase> normalization_gradient_cases() {
  return {
      {"softmax", {{2, 3}}, [](Inputs x) { return softmax(x[0], -1); }},
      {"softmax, first axis", {{2, 3}}, [](Inputs x) { return softmax(x[0], 0); }},
      {"softmax_backward",
       {{2, 3}, {2, 3}},
       [](Inputs x) { return softmax_backward(x[0], x[1], 1); }},
      {"log_softmax", {{2, 3}}, [](Inputs x) { return log_softmax(x[0], 1); }},
      {"log_softmax_backward",
       {{2, 3}, {2, 3}},
       [](Inputs x) { return log_softmax_backward(x[0], x[1] - 2, 1); }},
      {"layer_norm",
       {{3, 4}, {4}, {4}},
       [](Inputs x) { return layer_norm(x[0], x[1], x[2], 1, 1e-3); }},
      {"layer_norm, without gamma and beta",
       {{3, 4}},
       [](Inputs x) { return layer_norm(x[0], {}, {}, 1, 1e-3); }},
      {"layer_norm, gamma alone over two axes",
       {{2, 2, 3}, {2, 3}},
       [](Inputs x) { return layer_norm(x[0], x[1], {}, 2, 1e-3); }},
      {"layer_norm, beta alone",
       {{2, 3}, {3}},
       [](Inputs x) { return layer_norm(x[0], {}, x[1], 1, 1e-3); }},
      {"layer_norm_backward",
       {{2, 4}, {2, 4}, {4}},
       [](Inputs x) { return mixed_layer_norm_backward(x, 1); }},
      {"layer_norm_backward, without gamma",
       {{2, 2, 2}, {2, 2, 2}},
       [](Inputs x) { return mixed_layer_norm_backward(x, 2); }},
      {"rms_norm", {{3, 4}, {4}}, [](Inputs x) { return rms_norm(x[0], x[1], 1, 1e-3); }},
      {"rms_norm, without gamma", {{2, 3}}, [](Inputs x) { return rms_norm(x[0], {}, 1, 1e-3); }},
      {"rms_norm_backward", {{2, 4}, {2, 4}, {4}}, mixed_rms_norm_backward},
      {"rms_norm_backward, without gamma", {{2, 3}, {2, 3}}, mixed_rms_norm_backward},
      {"cross_entropy",
       {{3, 4}},
       [](Inputs x) {
         return cross_entropy(x[0], targets({1, -100, 3}), -100, 0.1);
       }},
      {"cross_entropy, rows",
       {{2, 4}},
       [](Inputs x) {
         return cross_entropy(x[0], targets({0, 2}), -100, 0, Reduction::kNone);
       }},
      {"cross_entropy_backward",
       {{}, {3, 4}},
       [](Inputs x) {
         const Tensor target = targets({1, -100, 3});
         Tensor lse;
         cross_entropy(x[1], target, -100, 0.1, Reduction::kMean, &lse);
         return cross_entropy_backward(x[0], x[1], target, lse, -100, 0.1, Reduction::kMean);
       }},
  };
}

std::vector<GradientCase> attention_gradient_cases() {
  const std::vector<std::vector<int64_t>> same{{1, 2, 3, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}};
  const std::vector<std::vector<int64_t>> grouped{{1, 4, 2, 2}, {1, 2, 3, 2}, {1, 2, 3, 3}};
  std::vector<std::vector<int64_t>> backward{{1, 4, 2, 3}};
  backward.insert(backward.end(), grouped.begin(), grouped.end());
  std::vector<GradientCase> cases = {
      {"sdpa", same, [](Inputs x) { return sdpa(x[0], x[1], x[2], 0.7); }},
      {"sdpa, causal and grouped", grouped,
       [](Inputs x) { return grouped_sdpa(x, Causal::kBottomRight); }},
      {"sdpa, grouped", grouped, [](Inputs x) { return grouped_sdpa(x, Causal::kNone); }},
      {"sdpa, with mask and bias", same,
       [](Inputs x) {
         return sdpa(x[0], x[1], x[2], 0.7, seen({1, 2, 3, 3}), gradient_sample({1, 2, 3, 3}, 8));
       }},
      {"sdpa_backward", backward,
       [](Inputs x) { return mixed_sdpa_backward(x, {}, {}, Causal::kNone); }},
      {"sdpa_backward, causal with mask and bias", backward,
       [](Inputs x) {
         return mixed_sdpa_backward(x, seen({1, 4, 2, 3}), gradient_sample({1, 4, 2, 3}, 8),
                                    Causal::kBottomRight);
       }},
      {"rope", {{2, 6}}, [](Inputs x) { return turned(x[0], 3, false, false); }},
      {"rope, interleaved in part",
       {{2, 6}},
       [](Inputs x) { return turned(x[0], 2, true, false); }},
      {"rope_backward", {{2, 6}}, [](Inputs x) { return turned(x[0], 2, false, true); }},
  };
  std::vector<std::vector<int64_t>> with_sinks = grouped, backward_with_sinks = backward;
  with_sinks.push_back({4});
  backward_with_sinks.push_back({4});
  const auto add = [&](const char* name, const char* backward_name, Causal causal,
                       const AttentionTerms& terms, bool has_sinks) {
    cases.push_back({name, has_sinks ? with_sinks : grouped,
                     [=](Inputs x) { return sdpa_with(x, causal, terms); }});
    cases.push_back({backward_name, has_sinks ? backward_with_sinks : backward,
                     [=](Inputs x) { return sdpa_backward_with(x, causal, terms); }});
  };
  add("sdpa, top left", "sdpa_backward, top left", Causal::kTopLeft, {}, false);
  add("sdpa, windows", "sdpa_backward, windows", Causal::kNone,
      {.window_left = 1, .window_right = 2}, false);
  add("sdpa, soft cap", "sdpa_backward, soft cap", Causal::kNone, {.softcap = 0.8}, false);
  add("sdpa, sinks", "sdpa_backward, sinks", Causal::kNone, {}, true);
  add("sdpa, dropout", "sdpa_backward, dropout", Causal::kNone, {.dropout_p = 0.4}, false);
  add("sdpa, all of them", "sdpa_backward, all of them", Causal::kBottomRight,
      {.window_left = 2, .softcap = 0.8, .dropout_p = 0.3}, true);
  return cases;
}

}  // namespace bp
