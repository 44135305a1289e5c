// The model that the programs train: a character-level transformer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backplane/runtime/runtime.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/stages.hpp"
#include "train_gpt/text.hpp"

class Gpt : public bp::nn::Module {
 public:
  Gpt(int64_t vocabulary, const Options& options);

  // Maps tokens (batch, length) to logits (batch, length, vocabulary) of the next token.
  bp::Tensor forward(const bp::Tensor& tokens) override;

  // Returns the transformer blocks, from the first to the last.
  std::vector<std::shared_ptr<bp::nn::Module>> blocks() const {
    return {blocks_.begin(), blocks_.end()};
  }

  GptLayers layers() const { return {token_, position_, blocks(), norm_, head_}; }

 private:
  std::shared_ptr<bp::nn::Embedding> token_, position_;
  std::vector<std::shared_ptr<bp::nn::TransformerBlock>> blocks_;
  std::shared_ptr<bp::nn::LayerNorm> norm_;
  std::shared_ptr<bp::nn::Linear> head_;
};

// Returns the mean loss of windows that are spread evenly over the text's last tenth. `loss` runs
// the model.
double validate(bp::nn::Module& model, const std::function<bp::Tensor(const Windows&)>& loss,
                const Text& text, const Options& options);
double validate(Gpt& model, const Text& text, const Options& options);
