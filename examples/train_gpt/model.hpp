// The model that the programs train: a character-level transformer.
#pragma once

#include <memory>
#include <vector>

#include "backplane/runtime/runtime.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/text.hpp"

class Gpt : public bp::nn::Module {
 public:
  Gpt(int64_t vocabulary, const Options& options);

  // Maps tokens (batch, length) to logits (batch, length, vocabulary) of the next token.
  bp::Tensor forward(const bp::Tensor& tokens) override;

 private:
  std::shared_ptr<bp::nn::Embedding> token_, position_;
  std::vector<std::shared_ptr<bp::nn::TransformerBlock>> blocks_;
  std::shared_ptr<bp::nn::LayerNorm> norm_;
  std::shared_ptr<bp::nn::Linear> head_;
};

// Returns the mean loss of windows that are spread evenly over the text's last tenth.
double validate(Gpt& model, const Text& text, const Options& options);
