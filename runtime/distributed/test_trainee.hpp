// One model in all the ways in which ranks can share it, for tests of checkpoints.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/checkpoint.hpp"
#include "backplane/runtime/distributed/ddp.hpp"
#include "backplane/runtime/distributed/fsdp.hpp"
#include "backplane/runtime/distributed/mesh.hpp"
#include "backplane/runtime/distributed/tensor_parallel.hpp"
#include "backplane/runtime/optim.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {

struct Way {
  int stage = 0;              // Of FullyShardedDataParallel; 0: none.
  uint32_t tensor_ranks = 1;  // That have parts of each layer.
  bool has_replicas = false;  // Whether pairs of ranks shard the model.
  bool is_offloaded = false;  // Whether shards lie on another device.
};

inline std::string text_of(const Way& way, uint32_t ranks) {
  return std::to_string(ranks) + " ranks, stage " + std::to_string(way.stage) + ", " +
         std::to_string(way.tensor_ranks) + " along each layer" +
         (way.has_replicas ? ", with replicas" : "") +
         (way.is_offloaded ? ", shards elsewhere" : "");
}

class Trainee {
 public:
  Trainee(const ProcessGroup& world, const Way& way)
      : mesh_(world, {{"data", world.size() / way.tensor_ranks}, {"tensor", way.tensor_ranks}}) {
    using Layers = std::vector<std::shared_ptr<nn::Module>>;
    const ProcessGroup tensor = mesh_.group("tensor");
    if (way.tensor_ranks > 1) {
      model_ = std::make_shared<nn::Sequential>(
          Layers{std::make_shared<ColumnParallelLinear>(7, 10, tensor),
                 std::make_shared<nn::Gelu>(), std::make_shared<RowParallelLinear>(10, 3, tensor)});
      layout_.emplace(*model_, tensor);
    } else {
      model_ = std::make_shared<nn::Sequential>(Layers{std::make_shared<nn::Linear>(7, 10),
                                                       std::make_shared<nn::Gelu>(),
                                                       std::make_shared<nn::Linear>(10, 3)});
    }
    if (way.stage > 0) {
      FsdpOptions options{.stage = way.stage};
      if (way.is_offloaded) options.shard_device = other_test_device();
      ProcessGroup shards = mesh_.group("data");
      if (way.has_replicas) {
        options.replicas = world.split(world.rank() % 2, world.rank(), "replicas");
        shards = *world.split(world.rank() / 2, world.rank(), "shards");
      }
      const Layers units{model_->named_modules()[0].second};
      fsdp_ = std::make_unique<FullyShardedDataParallel>(model_, units, shards, options);
    }
    optimizer_ = std::make_unique<AdamW>(fsdp_ ? fsdp_->parameters() : model_->parameters());
  }

  nn::Module& model() { return *model_; }

  void step(uint32_t seed) {
    optimizer_->zero_grad();
    loss_of((*model_)(input(5, 7, seed))).backward();
    optimizer_->step();
  }

  // Returns the loss of a batch that is the same on all ranks.
  double loss() {
    const NoGradGuard no_grad;
    return loss_of((*model_)(input(5, 7, 99))).item<double>();
  }

  std::vector<Piece> pieces(const TensorMap& state) const {
    std::vector<Piece> weights = fsdp_ ? fsdp_->pieces() : pieces_of(model_->state_dict());
    std::vector<Piece> moments = fsdp_ ? fsdp_->optimizer_pieces(state) : pieces_of(state);
    std::vector<Piece> all;
    append_pieces(all, "model.", layout_ ? layout_->place(std::move(weights)) : weights);
    append_pieces(all, "optimizer.", layout_ ? layout_->place(std::move(moments)) : moments);
    return all;
  }

  void save(CheckpointFolder& folder, int64_t step) const {
    folder.save(step, pieces(optimizer_->state_dict()), {{"text", "of the run"}});
  }

  void load(CheckpointFolder& folder) {
    const TensorMap state = optimizer_->state_dict();
    folder.load(folder.open_latest(), pieces(state));
    optimizer_->load_state_dict(state);
  }

 private:
  const DeviceMesh mesh_;
  std::shared_ptr<nn::Sequential> model_;
  std::optional<ParallelLayout> layout_;
  std::unique_ptr<FullyShardedDataParallel> fsdp_;
  std::unique_ptr<AdamW> optimizer_;
};

// The bytes of all tensors of a checkpoint, by name.
using Content = std::map<std::string, std::vector<char>>;

inline Content content_of(const std::string& folder) {
  const CheckpointReader reader(folder);
  TensorMap whole;
  for (const auto& [name, entry] : reader.tensors()) {
    whole[name] = empty(entry.shape, entry.dtype, test_devices()[0]);
  }
  reader.read(pieces_of(whole));
  Content content;
  for (const auto& [name, tensor] : whole) {
    content[name].resize(tensor.size_bytes());
    tensor.copy_to_host(content[name].data(), content[name].size());
  }
  return content;
}

}  // namespace bp::distributed
