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

// Attention by other operators, on a device without a kernel for the op. The CPU of PyTorch has no
// kernel of these operators either, which only devices have.
struct Parts {
  Tensor q, k, v, p, kept;  // In f32 or f64; heads of keys are repeated for those of the queries.
  Tensor lse;
  double scale;

  Parts(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v,
        const OptionalTensor& bias, double dropout, bool is_causal, std::optional<double> own_scale,
        uint64_t seed, uint64_t offset)
      : scale(own_scale.value_or(1 / std::sqrt(static_cast<double>(given_q.size(3))))) {
    const at::ScalarType type = given_q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const int64_t group = given_q.size(1) / given_k.size(1);
    q = given_q.to(type);
    k = repeated(given_k.to(type), group);
    v = repeated(given_v.to(type), group);
    Tensor scores = at::mul(at::matmul(q, k.transpose(2, 3)), scale);
    if (bias && bias->defined()) scores = at::add(scores, bias->to(type));
    if (is_causal) {
      const auto options = q.options().dtype(at::kBool);
      const Tensor sees = at::tril(at::ones({q.size(2), k.size(2)}, options));
      scores = at::where(sees, scores, full_0d(-INFINITY, type, q.device()));
    }
    lse = at::logsumexp(scores, 3);
    // A query that sees no key has p = 0.
    const Tensor base = at::where(at::eq(lse, -INFINITY), full_0d(0, type, q.device()), lse);
    p = at::exp(at::sub(scores, base.unsqueeze(3)));
    if (dropout != 0) {
      Call call("dropout");
      kept = call.in("x", at::ones_like(p))
                 .set("p", dropout)
                 .word("seed", seed)
                 .word("offset", offset)
                 .run_one();
    }
  }
  static Tensor repeated(const Tensor& x, int64_t group) {
    if (group == 1) return x;
    const auto shape = x.sizes();
    return x.unsqueeze(2)
        .expand({shape[0], shape[1], group, shape[2], shape[3]})
        .reshape({shape[0], shape[1] * group, shape[2], shape[3]});
  }
  Tensor dropped(const Tensor& x) const { return kept.defined() ? at::mul(x, kept) : x; }
};

// The gradient of repeated heads is the sum over them.
Tensor summed(const Tensor& grad, const Tensor& like) {
  const int64_t group = grad.size(1) / like.size(1);
  if (group == 1) return grad.to(like.scalar_type());
  const Tensor parts =
      grad.reshape({grad.size(0), like.size(1), group, grad.size(2), grad.size(3)});
  return at::sum(parts, 2).to(like.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> gradients(const Parts& own, const Tensor& grad_y,
                                             const Tensor& y, const Tensor& q, const Tensor& k,
                                             const Tensor& v) {
  const Tensor grad = grad_y.to(own.q.scalar_type());
  const Tensor of_v = at::matmul(own.dropped(own.p).transpose(2, 3), grad);
  const Tensor of_p = own.dropped(at::matmul(grad, own.v.transpose(2, 3)));
  const Tensor row = at::sum(at::mul(grad, y.to(grad.scalar_type())), 3, true);
  const Tensor of_scores = at::mul(at::mul(own.p, at::sub(of_p, row)), own.scale);
  return {at::matmul(of_scores, own.k).to(q.scalar_type()),
          summed(at::matmul(of_scores.transpose(2, 3), own.q), k), summed(of_v, v)};
}

// Returns `x` with its elements as those of `like` lie. PyTorch counts on that when it compiles.
Tensor laid_like(const Tensor& x, const Tensor& like) {
  if (x.sizes() != like.sizes() || x.strides() == like.strides()) return x;
  return at::empty_like(like).copy_(x);
}

// Seed and offset travel to the gradient as numbers of the host.
Tensor number(uint64_t value) { return at::scalar_tensor(static_cast<int64_t>(value), at::kLong); }

std::atomic<bool> is_without_op{false};

std::pair<Tensor, Tensor> attend_at_once(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const OptionalTensor& bias, double dropout, bool is_causal,
                                         std::optional<double> scale, uint64_t seed,
                                         uint64_t offset) {
  require(!is_without_op, "the test asks for attention without the op");
  Call call("sdpa");
  put(call, q, k, v, bias, dropout, is_causal, scale, seed, offset);
  // The result lies as the queries do: PyTorch transposes both in the same way.
  Tensor y;
  if (v.size(3) == q.size(3)) call.out("y", y = at::empty_like(q));
  const auto outs = call.want("lse").run();
  return {y.defined() ? y : outs[0], outs.back()};
}

Outputs attend(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& bias,
               double dropout, bool is_causal, bool, std::optional<double> scale) {
  const auto [seed, offset] =
      dropout != 0 ? next_random(std::nullopt, q.device()) : std::pair<uint64_t, uint64_t>{0, 0};
  Tensor y, lse;
  try {
    std::tie(y, lse) = attend_at_once(q, k, v, bias, dropout, is_causal, scale, seed, offset);
  } catch (const Unsupported&) {
    const Parts own(q, k, v, bias, dropout, is_causal, scale, seed, offset);
    y = laid_like(at::matmul(own.dropped(own.p), own.v).to(q.scalar_type()), q);
    lse = own.lse;
  }
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
  const auto own_seed = static_cast<uint64_t>(seed.item<int64_t>());
  const auto own_offset = static_cast<uint64_t>(offset.item<int64_t>());
  try {
    require(!is_without_op, "the test asks for attention without the op");
    Call call("sdpa_backward");
    put(call, q, k, v, bias, dropout, is_causal, scale, own_seed, own_offset);
    const Tensor grad_q = at::empty_like(q), grad_k = at::empty_like(k), grad_v = at::empty_like(v);
    call.in("grad_y", grad).in("y", out).in("lse", lse);
    call.out("grad_q", grad_q).out("grad_k", grad_k).out("grad_v", grad_v).run();
    return {grad_q, grad_k, grad_v, Tensor()};
  } catch (const Unsupported&) {
    const Parts own(q, k, v, bias, dropout, is_causal, scale, own_seed, own_offset);
    const auto [of_q, of_k, of_v] = gradients(own, grad, out, q, k, v);
    return {laid_like(of_q, q), laid_like(of_k, k), laid_like(of_v, v), Tensor()};
  }
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

void set_without_attention(bool is_without) { is_without_op = is_without; }

void compose_attention() {
  compose("_fused_sdp_choice", &choose_op);
  compose("_scaled_dot_product_fused_attention_overrideable", &attend);
  compose("_scaled_dot_product_fused_attention_overrideable_backward", &attend_backward);
}

}  // namespace bpt

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &bpt::choose_attention)
}
