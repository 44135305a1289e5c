// Losses of classes.
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

// Returns the loss for logarithms of probabilities `x` (N, C, d1, ...) and targets (N, d1, ...). An
// element whose target is ignored has the loss 0 and the weight 0.
Tensor nll_loss(const Call& call, const Tensor& x, const Tensor& given_target,
                const Tensor& weight) {
  if (x.ndim() < 2 || given_target.ndim() + 1 != x.ndim()) {
    call.refuse("input 0 has the shape " + bp::to_string(x.shape()) + ", and the target " +
                bp::to_string(given_target.shape()) + "; allowed: the target lacks axis 1");
  }
  Tensor target = given_target.to(BP_I64);
  Tensor is_kept;
  if (call.has("ignore_index")) {
    is_kept = ne(target, call.integer("ignore_index", 0));
    target = keep_where(is_kept, target);
  }
  Tensor loss = neg(gather(x, target.unsqueeze(1), 1).squeeze(1));
  Tensor weights = ones(target.shape(), x.dtype(), x.device());
  if (weight) weights = index_select(weight, target.reshape({-1}), 0).reshape(target.shape());
  if (is_kept) weights = keep_where(is_kept, weights);
  loss = loss * weights;
  if (is_kept) loss = keep_where(is_kept, loss);

  const std::string reduction = call.text("reduction", "mean");
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss);
  if (reduction == "mean") return sum(loss) / sum(weights);
  call.refuse("attribute 'reduction' is '" + reduction + "'; allowed: none, sum and mean");
}

Values negative_log_likelihood(const Call& call) {
  return {nll_loss(call, call.input(0), call.input(1), call.optional(2))};
}

Values softmax_cross_entropy(const Call& call) {
  const Tensor logs = log_softmax(call.input(0), 1);
  return {nll_loss(call, logs, call.input(1), call.optional(2)), logs};
}

constexpr OpRow kRows[] = {
    {"NegativeLogLikelihoodLoss", 12, negative_log_likelihood, "ignore_index reduction"},
    {"SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy, "ignore_index reduction"},
};

}  // namespace

std::span<const OpRow> loss_ops() { return kRows; }

}  // namespace bp::onnx
