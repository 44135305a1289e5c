// Losses and their gradients.
#include "compose.h"

namespace bpt {
namespace {

Tensor zero_like_0d(const Tensor& like) { return full_0d(0, like.scalar_type(), like.device()); }

// The weight of each row: that of its class, and 0 if it is ignored.
struct Targets {
  Tensor is_counted;  // bool
  Tensor safe;        // The class, or 0 for a row that is ignored.
  OptionalTensor weight;

  Targets(const Tensor& target, const OptionalTensor& weights, int64_t ignore_index)
      : is_counted(at::ne(target, ignore_index)),
        safe(at::where(is_counted, target, full_0d(0, target.scalar_type(), target.device()))) {
    if (weights && weights->defined()) {
      weight = at::index_select(*weights, 0, safe.reshape({-1})).reshape(target.sizes());
    }
  }
  // The sum of the weights that count.
  Tensor total(const Tensor& like) const {
    if (!weight) return at::sum(is_counted, like.scalar_type());
    return at::sum(at::where(is_counted, *weight, zero_like_0d(*weight)));
  }
};

// x is (N, C) and target (N), or both have the places of a picture behind; C is axis 1.
std::tuple<Tensor, Tensor> nll(const Tensor& self, const Tensor& target,
                               const OptionalTensor& weight, int64_t reduction,
                               int64_t ignore_index) {
  const Tensor x = self.dim() == 1 ? self.unsqueeze(0) : self;
  const Tensor classes = self.dim() == 1 ? target.reshape({1}) : target;
  require(is_float(x) && x.dim() >= 2 && classes.dim() == x.dim() - 1 && x.size(1) > 0,
          "nll_loss takes log-probabilities of two axes or more");
  require(classes.scalar_type() == at::kLong, "the classes of nll_loss are i64");
  TORCH_CHECK(!weight || !weight->defined() || weight->numel() == x.size(1),
              "weight tensor should be defined either for all ", x.size(1),
              " classes or no classes, but got a weight of shape ", weight->sizes());
  const Targets targets(classes, weight, ignore_index);
  Tensor loss = at::neg(at::gather(x, 1, targets.safe.unsqueeze(1)).squeeze(1));
  if (targets.weight) loss = at::mul(loss, *targets.weight);
  loss = at::where(targets.is_counted, loss, zero_like_0d(loss));
  if (reduction == at::Reduction::None) {
    return {self.dim() == 1 ? loss.reshape({}) : loss, zero_like_0d(x)};
  }
  const Tensor total = targets.total(x), sum = at::sum(loss);
  return {reduction == at::Reduction::Mean ? at::div(sum, total) : sum, total};
}

Tensor nll_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                    const OptionalTensor& weight, int64_t reduction, int64_t ignore_index,
                    const Tensor& total) {
  const Tensor x = self.dim() == 1 ? self.unsqueeze(0) : self;
  const Tensor classes = self.dim() == 1 ? target.reshape({1}) : target;
  const Targets targets(classes, weight, ignore_index);
  Tensor each = at::neg(reduction == at::Reduction::Mean ? at::div(grad, total) : grad);
  each = each.dim() == 0 ? each.expand(classes.sizes()) : each.reshape(classes.sizes());
  if (targets.weight) each = at::mul(each, *targets.weight);
  each = at::where(targets.is_counted, each, zero_like_0d(each));
  const Tensor result = at::scatter(at::zeros_like(x, at::MemoryFormat::Contiguous), 1,
                                    targets.safe.unsqueeze(1), each.unsqueeze(1));
  return result.reshape(self.sizes());
}

// 1 / N for the mean, else 1.
double share(const Tensor& x, int64_t reduction) {
  return reduction == at::Reduction::Mean ? 1.0 / static_cast<double>(x.numel()) : 1.0;
}

Tensor mse_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                    int64_t reduction) {
  return at::mul(at::mul(at::sub(self, target), 2 * share(self, reduction)), grad);
}

Tensor smooth_l1_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                          int64_t reduction, double beta) {
  const Tensor distance = at::sub(self, target);
  const Tensor slope =
      beta == 0 ? at::sign(distance) : at::clamp(at::div(distance, beta), -1.0, 1.0);
  return at::mul(at::mul(slope, share(self, reduction)), grad);
}

Tensor huber_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                      int64_t reduction, double delta) {
  const Tensor slope = at::clamp(at::sub(self, target), -delta, delta);
  return at::mul(at::mul(slope, share(self, reduction)), grad);
}

Tensor reduced(const Tensor& loss, int64_t reduction) {
  if (reduction == at::Reduction::None) return loss;
  return reduction == at::Reduction::Mean ? at::mean(loss) : at::sum(loss);
}

Tensor bce_with_logits(const Tensor& self, const Tensor& target, const OptionalTensor& weight,
                       const OptionalTensor& pos_weight, int64_t reduction) {
  require(self.sizes() == target.sizes() && self.scalar_type() == target.scalar_type(),
          "the target has the shape and dtype of the logits");
  Call call("bce_with_logits_loss");
  call.in("x", self).in("target", target).set("reduction", reduction);
  if (weight && weight->defined()) call.in("weight", weight->expand_as(self));
  if (pos_weight && pos_weight->defined()) call.in("pos_weight", pos_weight->expand_as(self));
  return call.run_one();
}

Tensor bce(const Tensor& self, const Tensor& target, const OptionalTensor& weight,
           int64_t reduction) {
  require(self.sizes() == target.sizes(), "the target has the shape of the probabilities");
  // PyTorch limits both logarithms to -100.
  const Tensor yes = at::clamp_min(at::log(self), -100.0);
  const Tensor no = at::clamp_min(at::log1p(at::neg(self)), -100.0);
  Tensor loss = at::sub(at::mul(at::sub(target, 1.0), no), at::mul(target, yes));
  if (weight && weight->defined()) loss = at::mul(loss, *weight);
  return reduced(loss, reduction);
}

Tensor bce_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                    const OptionalTensor& weight, int64_t reduction) {
  const Tensor spread = at::clamp_min(at::mul(at::rsub(self, 1.0), self), 1e-12);
  Tensor result = at::mul(at::div(at::sub(self, target), spread), grad);
  if (weight && weight->defined()) result = at::mul(result, *weight);
  return reduction == at::Reduction::Mean ? at::mul(result, share(self, reduction)) : result;
}

}  // namespace

void compose_losses() {
  compose("nll_loss_forward", &nll);
  compose("nll_loss2d_forward", &nll);
  compose("nll_loss_backward", &nll_backward);
  compose("nll_loss2d_backward", &nll_backward);
  compose("mse_loss_backward", &mse_backward);
  compose("smooth_l1_loss_backward", &smooth_l1_backward);
  compose("huber_loss_backward", &huber_backward);
  compose("binary_cross_entropy_with_logits", &bce_with_logits);
  compose("binary_cross_entropy", &bce);
  compose("binary_cross_entropy_backward", &bce_backward);
}

}  // namespace bpt
