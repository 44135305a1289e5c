#include "train_gpt/strategy.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>

#include "train_gpt/context_strategy.hpp"
#include "train_gpt/expert_strategy.hpp"
#include "train_gpt/parallel_model.hpp"
#include "train_gpt/pipeline_strategy.hpp"
#include "train_gpt/server_strategy.hpp"
#include "train_gpt/steps.hpp"

namespace {

namespace bd = bp::distributed;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// Every rank has the whole model.
class Replicated : public Strategy {
 public:
  Replicated(const std::shared_ptr<Gpt>& model, const bd::ProcessGroup& group)
      : model_(model), ddp_(model, group) {}

  bp::nn::Module& model() override { return *model_; }
  std::vector<bp::Tensor> parameters() override { return model_->parameters(); }
  bp::Tensor loss(const Windows& windows) override {
    bp::Tensor loss = loss_of(*model_, windows);
    ddp_.prepare_backward({&loss, 1});
    return loss;
  }
  void clip(double most) override { bp::clip_grad_norm_on_device(parameters(), most); }
  bool runs_together() const override { return false; }
  uint32_t data_rank() const override { return ddp_.group().rank(); }
  uint32_t data_size() const override { return ddp_.group().size(); }
  Checkpoint checkpoint(const bp::AdamW& optimizer, int64_t step) override {
    return {model_->state_dict(), optimizer.state_dict(), step};
  }
  void load(const Checkpoint& checkpoint, bp::AdamW& optimizer) override {
    model_->load_state_dict(checkpoint.weights);
    optimizer.load_state_dict(checkpoint.state);
  }
  std::vector<bd::Piece> pieces(const bp::TensorMap& state) override {
    return with_prefixes(bd::pieces_of(model_->state_dict()), bd::pieces_of(state));
  }

 private:
  const std::shared_ptr<Gpt> model_;
  bd::DistributedDataParallel ddp_;
};

// Every rank has a part of the parameters. Each block is a unit.
class Sharded : public Strategy {
 public:
  Sharded(const std::shared_ptr<Gpt>& model, const bd::ProcessGroup& group, int stage)
      : fsdp_(model, model->blocks(), group, {.stage = stage}) {}

  bp::nn::Module& model() override { return fsdp_.module(); }
  std::vector<bp::Tensor> parameters() override { return fsdp_.parameters(); }
  bp::Tensor loss(const Windows& windows) override { return loss_of(fsdp_.module(), windows); }
  void clip(double most) override { fsdp_.clip_grad_norm(most); }
  bool runs_together() const override { return true; }
  uint32_t data_rank() const override { return fsdp_.group().rank(); }
  uint32_t data_size() const override { return fsdp_.group().size(); }
  Checkpoint checkpoint(const bp::AdamW& optimizer, int64_t step) override {
    const bp::Device where = fsdp_.group().device();
    return {fsdp_.state(where), fsdp_.whole_optimizer_state(optimizer.state_dict(), where), step};
  }
  void load(const Checkpoint& checkpoint, bp::AdamW& optimizer) override {
    fsdp_.load_state(checkpoint.weights);
    optimizer.load_state_dict(fsdp_.sharded_optimizer_state(checkpoint.state));
  }
  std::vector<bd::Piece> pieces(const bp::TensorMap& state) override {
    return with_prefixes(fsdp_.pieces(), fsdp_.optimizer_pieces(state));
  }

 private:
  bd::FullyShardedDataParallel fsdp_;
};

// The ranks of the axis "tensor" have parts of each layer. Over the axis "data", these parts are
// sharded further.
class Cut : public Strategy {
 public:
  Cut(int64_t vocabulary, const Options& options, const bd::DeviceMesh& mesh, int stage)
      : vocabulary_(vocabulary),
        tensor_(mesh.group("tensor")),
        data_(mesh.group("data")),
        model_(std::make_shared<ParallelGpt>(vocabulary, options, tensor_)),
        layout_(*model_, tensor_),
        fsdp_(model_, model_->blocks(), data_, {.stage = stage}) {}

  bp::nn::Module& model() override { return *model_; }
  std::vector<bp::Tensor> parameters() override { return fsdp_.parameters(); }
  bp::Tensor loss(const Windows& windows) override {
    const bp::Tensor logits = fsdp_(windows.inputs).flatten(0, 1);
    return bd::parallel_cross_entropy(logits, windows.targets, vocabulary_, tensor_);
  }
  void clip(double most) override {
    const bp::Tensor squares = layout_.squared_grad_norm(parameters());
    data_.all_reduce(squares).join();
    bp::scale_grads_to_norm(parameters(), squares, most);
  }
  bool runs_together() const override { return true; }
  uint32_t data_rank() const override { return data_.rank(); }
  uint32_t data_size() const override { return data_.size(); }
  Checkpoint checkpoint(const bp::AdamW& optimizer, int64_t step) override {
    const bp::Device where = data_.device();
    const bp::TensorMap weights = fsdp_.state(where);
    const bp::TensorMap state = fsdp_.whole_optimizer_state(optimizer.state_dict(), where);
    return {layout_.whole(weights), layout_.whole(state), step};
  }
  void load(const Checkpoint& checkpoint, bp::AdamW& optimizer) override {
    fsdp_.load_state(layout_.part(checkpoint.weights));
    optimizer.load_state_dict(fsdp_.sharded_optimizer_state(layout_.part(checkpoint.state)));
  }
  std::vector<bd::Piece> pieces(const bp::TensorMap& state) override {
    return with_prefixes(layout_.place(fsdp_.pieces()),
                         layout_.place(fsdp_.optimizer_pieces(state)));
  }

 private:
  const int64_t vocabulary_;
  const bd::ProcessGroup tensor_, data_;
  const std::shared_ptr<ParallelGpt> model_;
  const bd::ParallelLayout layout_;
  bd::FullyShardedDataParallel fsdp_;
};

void check(const StrategyChoice& choice) {
  constexpr std::array kNames{"ddp", "fsdp", "tp", "2d", "pp", "3d", "cp", "ep", "ps"};
  const bool is_sharded = choice.name == "fsdp" || choice.name == "2d" || choice.name == "3d";
  if (std::ranges::find(kNames, choice.name) == kNames.end()) {
    fail("--strategy is '" + choice.name + "'; allowed: ddp, fsdp, tp, 2d, pp, 3d, cp, ep, ps");
  }
  const std::string& stage = choice.shard_stage;
  if (!stage.empty() && !is_sharded) {
    fail("--shard-stage is for --strategy fsdp, 2d and 3d");
  }
  if (!stage.empty() && stage != "1" && stage != "2" && stage != "3") {
    fail("--shard-stage is '" + stage + "'; allowed: 1, 2, 3");
  }
  if (!choice.tensor_ranks.empty() && choice.name != "2d" && choice.name != "3d") {
    fail("--tensor-ranks is for --strategy 2d and 3d");
  }
  if (!choice.pipeline_ranks.empty() && choice.name != "3d") {
    fail("--pipeline-ranks is for --strategy 3d");
  }
  const bool has_pipeline = choice.name == "pp" || choice.name == "3d";
  if (!has_pipeline && !(choice.schedule.empty() && choice.micro_batches.empty())) {
    fail("--schedule and --micro-batches are for --strategy pp and 3d");
  }
  if (!choice.context_kind.empty() && choice.name != "cp") {
    fail("--context-kind is for --strategy cp");
  }
  if (choice.name != "ep" &&
      !(choice.experts.empty() && choice.top_k_experts.empty() && choice.expert_exchange.empty())) {
    fail("--experts, --top-k-experts and --expert-exchange are for --strategy ep");
  }
  if (choice.name != "ps" && !(choice.servers.empty() && choice.staleness.empty())) {
    fail("--servers and --staleness are for --strategy ps");
  }
}

// Returns the ranks along the axis "tensor".
uint32_t tensor_ranks_of(const StrategyChoice& choice, uint32_t world_size) {
  if (choice.name == "tp") return world_size;
  const std::string& text = choice.tensor_ranks;
  if (text.empty() && world_size % 2 == 0) return 2;
  for (uint32_t count = 1; count <= world_size; ++count) {
    if (world_size % count == 0 && std::to_string(count) == text) return count;
  }
  fail("--tensor-ranks is '" + (text.empty() ? "2" : text) + "', for " +
       std::to_string(world_size) + " ranks; allowed: divisors of their number");
}

}  // namespace

uint32_t number_of(const char* option, const std::string& text, uint32_t otherwise,
                   uint32_t least) {
  if (text.empty()) return otherwise;
  const bool is_number = text.size() < 7 && text.find_first_not_of("0123456789") == text.npos;
  if (is_number && std::stoul(text) >= least) return static_cast<uint32_t>(std::stoul(text));
  fail(std::string(option) + " is '" + text + "'; allowed: " + std::to_string(least) +
       " to 999999");
}

uint32_t experts_of(const StrategyChoice& choice) {
  return number_of("--experts", choice.experts, 8);
}

uint32_t top_k_experts_of(const StrategyChoice& choice) {
  return number_of("--top-k-experts", choice.top_k_experts, 2);
}

std::string variant_of(const StrategyChoice& choice) {
  if (choice.name != "ep") return "";
  return std::to_string(experts_of(choice)) + " experts, of which each token chooses " +
         std::to_string(top_k_experts_of(choice));
}

std::vector<bd::Piece> with_prefixes(std::vector<bd::Piece> weights, std::vector<bd::Piece> state) {
  std::vector<bd::Piece> all;
  bd::append_pieces(all, "model.", std::move(weights));
  bd::append_pieces(all, "optimizer.", std::move(state));
  return all;
}

std::shared_ptr<bp::AdamW> Strategy::make_optimizer(const bp::AdamWOptions& options) {
  return std::make_shared<bp::AdamW>(parameters(), options);
}

void Strategy::begin(const bp::CosineSchedule&, int64_t) {}

void Strategy::update(bp::AdamW* optimizer, double lr) {
  optimizer->set_lr(lr);
  optimizer->step();
}

bp::Tensor Strategy::loss_and_gradients(const Windows& windows) {
  const bp::Tensor mean = loss(windows);
  mean.backward();
  return mean.detach();
}

std::unique_ptr<Strategy> make_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                        const Options& options, const bd::ProcessGroup& group) {
  check(choice);
  const int stage = choice.shard_stage.empty() ? 3 : choice.shard_stage[0] - '0';
  if (choice.name == "tp" || choice.name == "2d") {
    const uint32_t tensor = tensor_ranks_of(choice, group.size());
    const bd::DeviceMesh mesh(group, {{"data", group.size() / tensor}, {"tensor", tensor}});
    return std::make_unique<Cut>(vocabulary, options, mesh, choice.name == "tp" ? 1 : stage);
  }
  if (choice.name == "pp" || choice.name == "3d") {
    return make_pipeline_strategy(choice, vocabulary, options, group);
  }
  if (choice.name == "cp") return make_context_strategy(choice, vocabulary, options, group);
  if (choice.name == "ep") return make_expert_strategy(choice, vocabulary, options, group);
  if (choice.name == "ps") return make_server_strategy(choice, vocabulary, options, group);
  const auto model = std::make_shared<Gpt>(vocabulary, options);
  if (choice.name == "ddp") return std::make_unique<Replicated>(model, group);
  return std::make_unique<Sharded>(model, group, stage);
}
