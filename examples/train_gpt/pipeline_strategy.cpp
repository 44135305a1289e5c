#include "train_gpt/pipeline_strategy.hpp"

#include <optional>
#include <stdexcept>

#include "train_gpt/model.hpp"
#include "train_gpt/parallel_model.hpp"
#include "train_gpt/stages.hpp"

namespace {

namespace bd = bp::distributed;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// How many ranks lie along each axis, and the schedule of the pipeline.
struct Plan {
  uint32_t data = 1, pipeline = 1, tensor = 1;
  int shard_stage = 0;  // Of the axis "data", as in FsdpOptions. 0: it has replicas.
  bd::PipelineSchedule schedule;
};

Plan make_plan(const StrategyChoice& choice, const Options& options, uint32_t world_size) {
  Plan plan;
  plan.pipeline = world_size;
  if (choice.name == "3d") {
    plan.tensor = number_of("--tensor-ranks", choice.tensor_ranks, 2);
    plan.pipeline = number_of("--pipeline-ranks", choice.pipeline_ranks, 2);
    plan.data = world_size / plan.tensor / plan.pipeline;
    if (plan.data * plan.tensor * plan.pipeline != world_size) {
      fail("--pipeline-ranks is " + std::to_string(plan.pipeline) + " and --tensor-ranks " +
           std::to_string(plan.tensor) + ", for " + std::to_string(world_size) +
           " ranks; allowed: a product that divides their number");
    }
  }
  const std::string name = choice.schedule.empty() ? "1f1b" : choice.schedule;
  const uint32_t count = number_of("--micro-batches", choice.micro_batches, plan.pipeline);
  const int64_t rows = options.batch / plan.data;
  if (rows % count != 0) {
    fail("--micro-batches is " + std::to_string(count) + ", for batches of " +
         std::to_string(rows) + "; allowed: divisors of this number");
  }
  plan.schedule =
      bd::make_pipeline_schedule(name, plan.pipeline, count, name == "interleaved" ? 2 : 1);
  if (!choice.shard_stage.empty()) plan.shard_stage = choice.shard_stage[0] - '0';
  if (plan.shard_stage > 0 && name == "interleaved") {
    fail(
        "--schedule interleaved has two stages on each rank, and --shard-stage shards one; "
        "allowed: gpipe, 1f1b, zb");
  }
  if (plan.shard_stage > 0 && options.ties_weights && plan.pipeline > 1) {
    fail(
        "--tie-weights needs the same weight on two ranks of a pipeline, and --shard-stage shards "
        "it on each; allowed: 3d without --shard-stage");
  }
  if (plan.shard_stage == 3 && name == "zb") {
    fail(
        "--schedule zb needs the parameters behind their backward, when --shard-stage 3 has given "
        "them back; allowed: --shard-stage 1 and 2");
  }
  if (plan.schedule.stage_count() > options.layers) {
    fail("--layers is " + std::to_string(options.layers) + ", for " +
         std::to_string(plan.schedule.stage_count()) +
         " stages; allowed: at least one block for each stage");
  }
  return plan;
}

// Every rank makes the whole model, so that all draw the same first values, and keeps its stages.
struct Parts {
  std::shared_ptr<GptStages> stages;
  std::vector<std::string> names;  // Of the parameters of the whole model.
};
template <typename Model>
Parts part_of(const Model& whole, const bd::PipelineSchedule& schedule, uint32_t rank) {
  Parts parts{.stages = std::make_shared<GptStages>(whole.layers(), schedule.stages_of(rank),
                                                    schedule.stage_count()),
              .names = {}};
  for (const auto& [name, tensor] : whole.named_parameters()) parts.names.push_back(name);
  return parts;
}

// Ranks of the axis "pipeline" have different stages, those of "tensor" parts of the same layers,
// and those of "data" other windows and the same parameters, or shards of them.
class Staged : public Strategy {
 public:
  Staged(const Plan& plan, int64_t vocabulary, const Options& options, const bd::DeviceMesh& mesh)
      : data_(mesh.group("data")),
        tensor_(mesh.group("tensor")),
        ranks_(mesh.group("pipeline")),
        parts_(plan.tensor == 1 ? part_of(Gpt(vocabulary, options), plan.schedule, ranks_.rank())
                                : part_of(ParallelGpt(vocabulary, options, tensor_), plan.schedule,
                                          ranks_.rank())),
        layout_(*parts_.stages, parts_.names, ranks_, options.ties_weights),
        tensor_layout_(layout_of(plan, *parts_.stages, tensor_)),
        fsdp_(shard(plan, parts_.stages, data_)),
        sums_first_(plan.shard_stage == 1),
        pipeline_(
            fsdp_ ? std::vector<std::shared_ptr<bp::nn::Module>>{parts_.stages}
                  : parts_.stages->stages(),
            [vocabulary, group = tensor_](const bp::Tensor& logits, const bp::Tensor& targets) {
              const bp::Tensor flat = logits.flatten(0, 1);
              return group.size() == 1
                         ? bp::cross_entropy(flat, targets)
                         : bd::parallel_cross_entropy(flat, targets, vocabulary, group);
            },
            ranks_,
            {.schedule = plan.schedule,
             .activation_shape = {options.context, options.width},
             .shared_weights = parts_.stages->shared_weights()}) {}

  bp::nn::Module& model() override { return *parts_.stages; }
  std::vector<bp::Tensor> parameters() override {
    return fsdp_ ? fsdp_->parameters() : parts_.stages->parameters();
  }
  bp::Tensor loss(const Windows& windows) override {
    return pipeline_.forward(windows.inputs, windows.targets);
  }
  bp::Tensor loss_and_gradients(const Windows& windows) override {
    // Stages draw different numbers. Ranks of one stage draw the same ones.
    bp::Generator& generator = ranks_.device().generator();
    generator.set_seed(hashed(generator.state().seed, ranks_.rank()));
    if (sums_first_) return loss_and_sums(windows);
    bp::Tensor loss = pipeline_.forward_backward(windows.inputs, windows.targets);
    if (!fsdp_ && data_.size() > 1) bd::average_gradients(parameters(), data_);
    return loss;
  }
  void clip(double most) override {
    // A weight of two ranks counts on the first one. What has no gradient does not count.
    std::vector<bp::Tensor> counted = parameters();
    for (bp::Tensor& tensor : counted) {
      if (pipeline_.is_copy(tensor)) tensor = tensor.detach();
    }
    const bp::Tensor squares = tensor_layout_ ? tensor_layout_->squared_grad_norm(counted)
                                              : bp::squared_grad_norm(counted);
    if (fsdp_) data_.all_reduce(squares).join();
    ranks_.all_reduce(squares).join();
    bp::scale_grads_to_norm(parameters(), squares, most);
  }
  bool runs_together() const override { return true; }
  uint32_t data_rank() const override { return data_.rank(); }
  uint32_t data_size() const override { return data_.size(); }
  Checkpoint checkpoint(const bp::AdamW& optimizer, int64_t step) override {
    const bp::TensorMap state = optimizer.state_dict();
    if (!fsdp_) return {whole(parts_.stages->state_dict()), whole(state), step};
    const bp::Device where = data_.device();
    return {whole(fsdp_->state(where)), whole(fsdp_->whole_optimizer_state(state, where)), step};
  }
  void load(const Checkpoint& checkpoint, bp::AdamW& optimizer) override {
    const bp::TensorMap weights = part(checkpoint.weights), state = part(checkpoint.state);
    if (fsdp_) {
      fsdp_->load_state(weights);
    } else {
      parts_.stages->load_state_dict(weights);
    }
    optimizer.load_state_dict(fsdp_ ? fsdp_->sharded_optimizer_state(state) : state);
  }
  std::vector<bd::Piece> pieces(const bp::TensorMap& state) override {
    if (fsdp_)
      return with_prefixes(placed(fsdp_->pieces()), placed(fsdp_->optimizer_pieces(state)));
    return with_prefixes(placed(bd::pieces_of(parts_.stages->state_dict())),
                         placed(bd::pieces_of(state)));
  }

 private:
  static std::optional<bd::ParallelLayout> layout_of(const Plan& plan, const GptStages& stages,
                                                     const bd::ProcessGroup& group) {
    if (plan.tensor == 1) return std::nullopt;
    return std::optional<bd::ParallelLayout>(std::in_place, stages, group);
  }
  static std::unique_ptr<bd::FullyShardedDataParallel> shard(
      const Plan& plan, const std::shared_ptr<GptStages>& stages, const bd::ProcessGroup& group) {
    if (plan.shard_stage == 0) return nullptr;
    return std::make_unique<bd::FullyShardedDataParallel>(
        stages, stages->blocks(), group, bd::FsdpOptions{.stage = plan.shard_stage});
  }

  // Adds up the gradients of all micro-batches here, and then averages them over the axis "data".
  bp::Tensor loss_and_sums(const Windows& windows) {
    bp::Tensor loss;
    {
      const auto no_sync = fsdp_->no_sync();
      loss = pipeline_.forward_backward(windows.inputs, windows.targets);
    }
    fsdp_->average_gradients();
    return loss;
  }

  std::vector<bd::Piece> placed(const std::vector<bd::Piece>& pieces) const {
    return layout_.place(tensor_layout_ ? tensor_layout_->place(pieces) : pieces);
  }
  bp::TensorMap whole(const bp::TensorMap& state) const {
    return layout_.whole(tensor_layout_ ? tensor_layout_->whole(state) : state);
  }
  bp::TensorMap part(const bp::TensorMap& whole) const {
    const bp::TensorMap own = layout_.part(whole);
    return tensor_layout_ ? tensor_layout_->part(own) : own;
  }

  const bd::ProcessGroup data_, tensor_, ranks_;
  const Parts parts_;
  const bd::PipelineLayout layout_;
  const std::optional<bd::ParallelLayout> tensor_layout_;
  const std::unique_ptr<bd::FullyShardedDataParallel> fsdp_;  // Null if "data" has replicas.
  // At stage 1 gradients are whole anyhow, so one exchange a step is enough. Above it no rank keeps
  // whole gradients, so each micro-batch is averaged while its backward runs.
  const bool sums_first_;
  bd::PipelineParallel pipeline_;
};

}  // namespace

std::unique_ptr<Strategy> make_pipeline_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                                 const Options& options,
                                                 const bd::ProcessGroup& group) {
  const Plan plan = make_plan(choice, options, group.size());
  const bd::DeviceMesh mesh(
      group, {{"data", plan.data}, {"pipeline", plan.pipeline}, {"tensor", plan.tensor}});
  return std::make_unique<Staged>(plan, vocabulary, options, mesh);
}
