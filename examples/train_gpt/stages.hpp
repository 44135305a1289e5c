// The layers of a transformer as stages of a pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/runtime.hpp"

// A head that has the weight of an embedding, which owns it: a state has the weight once.
class TiedHead : public bp::nn::Module {
 public:
  // Without `ranks` the embedding is whole, and otherwise cut by rows over these ranks.
  explicit TiedHead(const bp::nn::Module& embedding,
                    std::optional<bp::distributed::ProcessGroup> ranks = std::nullopt);
  bp::Tensor forward(const bp::Tensor& x) override;

 private:
  const bp::Tensor weight_;
  const std::optional<bp::distributed::ProcessGroup> ranks_;
};

// The layers of a Gpt, or of a ParallelGpt. The head may be a TiedHead of `token`.
struct GptLayers {
  std::shared_ptr<bp::nn::Module> token, position;
  std::vector<std::shared_ptr<bp::nn::Module>> blocks;
  std::shared_ptr<bp::nn::Module> norm, head;
  bool is_tied = false;
};

// The stages of one rank. The blocks are shared out evenly over all stages. The first stage has the
// embeddings too, and the last one the norm and the head. If the head is tied, the last stage has
// the token embedding too. Parameters have the names of the whole model.
class GptStages : public bp::nn::Module {
 public:
  // `own` are the numbers of the stages of this rank, which grow. There are at least as many blocks
  // as stages.
  GptStages(const GptLayers& layers, const std::vector<uint32_t>& own, uint32_t stage_count);

  const std::vector<std::shared_ptr<bp::nn::Module>>& stages() const { return stages_; }

  // Returns the transformer blocks of all stages of this rank.
  const std::vector<std::shared_ptr<bp::nn::Module>>& blocks() const { return blocks_; }

  // Returns the weights of which another rank of the pipeline has a copy, by name.
  const std::vector<std::pair<std::string, bp::Tensor>>& shared_weights() const {
    return shared_weights_;
  }

  // Runs the stages of this rank one behind the other.
  bp::Tensor forward(const bp::Tensor& x) override;

 private:
  std::vector<std::shared_ptr<bp::nn::Module>> stages_, blocks_;
  std::vector<std::pair<std::string, bp::Tensor>> shared_weights_;
};
