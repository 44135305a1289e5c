// The layers of a transformer as stages of a pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backplane/runtime/runtime.hpp"

// The layers of a Gpt, or of a ParallelGpt.
struct GptLayers {
  std::shared_ptr<bp::nn::Module> token, position;
  std::vector<std::shared_ptr<bp::nn::Module>> blocks;
  std::shared_ptr<bp::nn::Module> norm, head;
};

// The stages of one rank. The blocks are shared out evenly over all stages. The first stage has the
// embeddings too, and the last one the norm and the head. Parameters have the names and the order
// of the whole model.
class GptStages : public bp::nn::Module {
 public:
  // `own` are the numbers of the stages of this rank, which grow. There are at least as many blocks
  // as stages.
  GptStages(const GptLayers& layers, const std::vector<uint32_t>& own, uint32_t stage_count);

  const std::vector<std::shared_ptr<bp::nn::Module>>& stages() const { return stages_; }

  // Returns the transformer blocks of all stages of this rank.
  const std::vector<std::shared_ptr<bp::nn::Module>>& blocks() const { return blocks_; }

  // Runs the stages of this rank one behind the other.
  bp::Tensor forward(const bp::Tensor& x) override;

 private:
  std::vector<std::shared_ptr<bp::nn::Module>> stages_, blocks_;
};
