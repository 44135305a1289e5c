#include "train_gpt/model.hpp"

#include <string>

#include "train_gpt/steps.hpp"

Gpt::Gpt(int64_t vocabulary, const Options& o)
    : Gpt(vocabulary, o, [&o] {
        return std::make_shared<bp::nn::TransformerBlock>(
            o.width, o.heads,
            bp::nn::TransformerBlockOptions{.attention = {.causal = bp::Causal::kTopLeft},
                                            .dropout = o.dropout});
      }) {}

Gpt::Gpt(int64_t vocabulary, const Options& o, const BlockMaker& make_block)
    : is_tied_(o.ties_weights) {
  namespace nn = bp::nn;
  add_module("token", token_ = std::make_shared<nn::Embedding>(vocabulary, o.width, 0.1));
  add_module("position", position_ = std::make_shared<nn::Embedding>(o.context, o.width, 0.1));
  for (int64_t i = 0; i < o.layers; ++i) {
    blocks_.push_back(make_block());
    add_module("blocks." + std::to_string(i), blocks_.back());
  }
  add_module("norm", norm_ = std::make_shared<nn::LayerNorm>(o.width));
  if (o.ties_weights) {
    head_ = std::make_shared<TiedHead>(*token_);
  } else {
    add_module("head", head_ = std::make_shared<nn::Linear>(o.width, vocabulary, false));
  }
}

bp::Tensor Gpt::forward(const bp::Tensor& tokens) {
  return forward(tokens, bp::arange(tokens.shape(1), BP_I64, tokens.device()));
}

bp::Tensor Gpt::forward(const bp::Tensor& tokens, const bp::Tensor& places) {
  bp::Tensor x = (*token_)(tokens) + (*position_)(places);
  for (const auto& block : blocks_) x = (*block)(x);
  return (*head_)((*norm_)(x));
}

double validate(Gpt& model, const Text& text, const Options& o) {
  return validate(
      model, [&](const Windows& windows) { return loss_of(model, windows); }, text, o);
}

double validate(bp::nn::Module& model, const std::function<bp::Tensor(const Windows&)>& loss,
                const Text& text, const Options& o) {
  const bp::NoGradGuard no_grad;
  model.train(false);
  const int64_t count = o.eval_batches * o.batch;
  const auto room = static_cast<int64_t>(text.validation.size()) - o.context - 1;
  double total = 0;
  for (int64_t i = 0; i < o.eval_batches; ++i) {
    std::vector<int64_t> starts;
    for (int64_t row = 0; row < o.batch; ++row)
      starts.push_back((i * o.batch + row) * room / count);
    const Tokens tokens = cut(text.validation, starts, o.context);
    total += loss(to_device(tokens, o.context)).item<double>();
  }
  model.train();
  return total / static_cast<double>(o.eval_batches);
}
