// Attention: PyTorch asks which implementation to take, then calls the one that devices override.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include "compose.h"

namespace bpt {
namespace {

using Outputs =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

// What forward and backward have in common. PyTorch's causal mask begins at the first key.
void put(Call& call, const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias,
         double dropout, bool is_causal, std::optional<double> scale, uint64_t seed,
         uint64_t offset) {
  call.in("q", q).in("k", k).in("v", v).set("dropout_p", dropout);
  call.set("scale", scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3)))));
  if (is_causal) call.choose("causal", "top_left");
  if (dropout != 0) call.word("seed", seed).word("offset", offset);
  if (bias && bias->defined()) {
    call.in("bias", bias->expand({q.size(0), q.size(1), q.size(2), k.size(2)}));
  }
}

// Seed and offset travel to the gradient as numbers of the host.
Tensor number(uint64_t value) { return at::scalar_tensor(static_cast<int64_t>(value), at::kLong); }

Outputs attend(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias,
               double dropout, bool is_causal, bool, std::optional<double> scale) {
  const auto [seed, offset] =
      dropout != 0 ? next_random(std::nullopt, q.device()) : std::pair<uint64_t, uint64_t>{0, 0};
  Call call("sdpa");
  put(call, q, k, v, bias, dropout, is_causal, scale, seed, offset);
  // The result lies as the queries do: PyTorch transposes both in the same way.
  Tensor y;
  if (v.size(3) == q.size(3)) call.out("y", y = at::empty_like(q));
  const auto outs = call.want("lse").run();
  const Tensor lse = outs.back();
  if (!y.defined()) y = outs[0];
  return {
      y,       lse, Tensor(), Tensor(), q.sym_size(2), k.sym_size(2), number(seed), number(offset),
      Tensor()};
}

// The gradient of the bias is that of the scores, which the op does not give: the bias needs none.
std::tuple<Tensor, Tensor, Tensor, Tensor> attend_backward(
    const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias,
    std::array<bool, 4>, const Tensor& out, const Tensor& lse, const Tensor&, const Tensor&,
    c10::SymInt, c10::SymInt, double dropout, bool is_causal, const Tensor& seed,
    const Tensor& offset, std::optional<double> scale) {
  Call call("sdpa_backward");
  put(call, q, k, v, bias, dropout, is_causal, scale, seed.item<int64_t>(), offset.item<int64_t>());
  const Tensor grad_q = at::empty_like(q), grad_k = at::empty_like(k), grad_v = at::empty_like(v);
  call.in("grad_y", grad).in("y", out).in("lse", lse);
  call.out("grad_q", grad_q).out("grad_k", grad_k).out("grad_v", grad_v).run();
  return {grad_q, grad_k, grad_v, Tensor()};
}

int64_t choose(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& mask,
               double, bool, std::optional<double>, bool) {
  const bool has_mask = mask && mask->defined();
  const bool is_served =
      is_float(q) && q.dim() == 4 && k.dim() == 4 && v.dim() == 4 &&
      q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type() &&
      q.size(0) == k.size(0) && k.size(1) == v.size(1) && k.size(1) != 0 &&
      q.size(1) % k.size(1) == 0 && q.numel() != 0 && k.numel() != 0 &&
      (!has_mask || (!mask->requires_grad() &&
                     (mask->scalar_type() == q.scalar_type() || mask->scalar_type() == at::kBool)));
  return static_cast<int64_t>(is_served ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

int64_t choose_op(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& mask,
                  double dropout, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  return choose(q, k, v, mask, dropout, is_causal, scale, enable_gqa);
}

}  // namespace

int64_t choose_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const OptionalTensor& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool enable_gqa) {
  return choose(q, k, v, mask, dropout, is_causal, scale, enable_gqa);
}

void compose_attention() {
  compose("_fused_sdp_choice", &choose_op);
  compose("_scaled_dot_product_fused_attention_overrideable", &attend);
  compose("_scaled_dot_product_fused_attention_overrideable_backward", &attend_backward);
}

}  // namespace bpt

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &bpt::choose_attention)
}
