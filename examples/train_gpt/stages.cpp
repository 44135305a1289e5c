#include "train_gpt/stages.hpp"

#include <string>

namespace {

// One stage. Its layers belong to GptStages, and the token embedding to both: the pipeline looks
// for weights that it shares in the stages.
class Stage : public bp::nn::Module {
 public:
  Stage(GptLayers layers, bool is_first, bool is_last)
      : layers_(std::move(layers)), is_first_(is_first), is_last_(is_last) {
    if (layers_.token) add_module("token", layers_.token);
  }

  bp::Tensor forward(const bp::Tensor& x) override {
    bp::Tensor y = x;
    if (is_first_) {
      const bp::Tensor places = bp::arange(x.shape(1), BP_I64, x.device());
      y = (*layers_.token)(x) + (*layers_.position)(places);
    }
    for (const auto& block : layers_.blocks) y = (*block)(y);
    return is_last_ ? (*layers_.head)((*layers_.norm)(y)) : y;
  }

 private:
  const GptLayers layers_;
  const bool is_first_, is_last_;
};

}  // namespace

TiedHead::TiedHead(const bp::nn::Module& embedding,
                   std::optional<bp::distributed::ProcessGroup> ranks)
    : weight_(embedding.parameters().front()), ranks_(std::move(ranks)) {}

bp::Tensor TiedHead::forward(const bp::Tensor& x) {
  return bp::linear(ranks_ ? bp::distributed::share_with_ranks(x, *ranks_) : x, weight_);
}

GptStages::GptStages(const GptLayers& layers, const std::vector<uint32_t>& own,
                     uint32_t stage_count) {
  const size_t block_count = layers.blocks.size();
  for (const uint32_t stage : own) {
    const bool is_first = stage == 0, is_last = stage + 1 == stage_count;
    const size_t begin = block_count * stage / stage_count;
    const size_t end = block_count * (stage + 1) / stage_count;
    GptLayers part;
    if (is_first) {
      add_module("token", part.token = layers.token);
      add_module("position", part.position = layers.position);
    }
    for (size_t i = begin; i < end; ++i) {
      part.blocks.push_back(layers.blocks[i]);
      blocks_.push_back(layers.blocks[i]);
      add_module("blocks." + std::to_string(i), layers.blocks[i]);
    }
    if (is_last) {
      if (layers.is_tied && own.front() != 0) add_module("token", part.token = layers.token);
      add_module("norm", part.norm = layers.norm);
      part.head = layers.head;
      if (!layers.is_tied) add_module("head", layers.head);
    }
    stages_.push_back(std::make_shared<Stage>(std::move(part), is_first, is_last));
  }
  const bool has_first = own.front() == 0, has_last = own.back() + 1 == stage_count;
  if (layers.is_tied && has_first != has_last) {
    shared_weights_.emplace_back("token.weight", layers.token->parameters().front());
  }
}

bp::Tensor GptStages::forward(const bp::Tensor& x) {
  bp::Tensor y = x;
  for (const auto& stage : stages_) y = (*stage)(y);
  return y;
}
