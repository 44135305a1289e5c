// The model that the programs train: a character-level transformer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backplane/runtime/runtime.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/stages.hpp"
#include "train_gpt/text.hpp"

// Makes a transformer block, which maps (batch, length, width) to the same shape.
using BlockMaker = std::function<std::shared_ptr<bp::nn::Module>()>;

class Gpt : public bp::nn::Module {
 public:
  Gpt(int64_t vocabulary, const Options& options);
  // The same with blocks of another kind.
  Gpt(int64_t vocabulary, const Options& options, const BlockMaker& make_block);

  // Maps tokens (batch, length) to logits (batch, length, vocabulary) of the next token.
  bp::Tensor forward(const bp::Tensor& tokens) override;
  // The same for tokens at other places of the sequence than 0, 1, ..., of the shape (1, length).
  bp::Tensor forward(const bp::Tensor& tokens, const bp::Tensor& places);

  // Returns the transformer blocks, from the first to the last.
  const std::vector<std::shared_ptr<bp::nn::Module>>& blocks() const { return blocks_; }

  GptLayers layers() const { return {token_, position_, blocks(), norm_, head_, is_tied_}; }

 private:
  std::shared_ptr<bp::nn::Embedding> token_, position_;
  std::vector<std::shared_ptr<bp::nn::Module>> blocks_;
  std::shared_ptr<bp::nn::LayerNorm> norm_;
  std::shared_ptr<bp::nn::Module> head_;
  const bool is_tied_;
};

// Returns the mean loss of windows that are spread evenly over the text's last tenth. `loss` runs
// the model.
double validate(bp::nn::Module& model, const std::function<bp::Tensor(const Windows&)>& loss,
                const Text& text, const Options& options);
double validate(Gpt& model, const Text& text, const Options& options);
