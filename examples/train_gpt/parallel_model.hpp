// The model of model.hpp, cut over the ranks of a group.
#pragma once

#include <memory>
#include <vector>

#include "backplane/runtime/runtime.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/stages.hpp"

class ParallelGpt : public bp::nn::Module {
 public:
  ParallelGpt(int64_t vocabulary, const Options& options,
              const bp::distributed::ProcessGroup& ranks);

  // Maps tokens (batch, length) to this rank's part of the logits (batch, length, part).
  bp::Tensor forward(const bp::Tensor& tokens) override;

  std::vector<std::shared_ptr<bp::nn::Module>> blocks() const {
    return {blocks_.begin(), blocks_.end()};
  }

  GptLayers layers() const { return {token_, position_, blocks(), norm_, head_, is_tied_}; }

 private:
  std::shared_ptr<bp::distributed::VocabularyParallelEmbedding> token_;
  std::shared_ptr<bp::nn::Embedding> position_;
  std::vector<std::shared_ptr<bp::distributed::ParallelTransformerBlock>> blocks_;
  std::shared_ptr<bp::nn::LayerNorm> norm_;
  std::shared_ptr<bp::nn::Module> head_;
  const bool is_tied_;
};
