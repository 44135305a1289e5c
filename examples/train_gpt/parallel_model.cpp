#include "train_gpt/parallel_model.hpp"

#include <string>

namespace bd = bp::distributed;

// Layers are made in the order of Gpt, so that both draw the same first values.
ParallelGpt::ParallelGpt(int64_t vocabulary, const Options& o, const bd::ProcessGroup& ranks)
    : is_tied_(o.ties_weights) {
  namespace nn = bp::nn;
  token_ = std::make_shared<bd::VocabularyParallelEmbedding>(vocabulary, o.width, ranks, 0.1);
  add_module("token", token_);
  add_module("position", position_ = std::make_shared<nn::Embedding>(o.context, o.width, 0.1));
  for (int64_t i = 0; i < o.layers; ++i) {
    blocks_.push_back(std::make_shared<bd::ParallelTransformerBlock>(
        o.width, o.heads, ranks,
        nn::TransformerBlockOptions{.attention = {.causal = bp::Causal::kTopLeft},
                                    .dropout = o.dropout}));
    add_module("blocks." + std::to_string(i), blocks_.back());
  }
  add_module("norm", norm_ = std::make_shared<nn::LayerNorm>(o.width));
  if (is_tied_) {
    head_ = std::make_shared<TiedHead>(*token_, ranks);
    return;
  }
  head_ = std::make_shared<bd::ColumnParallelLinear>(o.width, vocabulary, ranks,
                                                     bd::ColumnParallelOptions{.has_bias = false});
  add_module("head", head_);
}

bp::Tensor ParallelGpt::forward(const bp::Tensor& tokens) {
  const bp::Tensor places = bp::arange(tokens.shape(1), BP_I64, tokens.device());
  bp::Tensor x = (*token_)(tokens) + (*position_)(places);
  for (const auto& block : blocks_) x = (*block)(x);
  return (*head_)((*norm_)(x));
}
