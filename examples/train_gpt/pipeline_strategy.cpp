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
// and those of "data" the same parameters and other windows.
class Staged : public Strategy {
 public:
  Staged(const Plan& plan, int64_t vocabulary, const Options& options, const bd::DeviceMesh& mesh)
      : data_(mesh.group("data")),
        tensor_(mesh.group("tensor")),
        ranks_(mesh.group("pipeline")),
        parts_(plan.tensor == 1 ? part_of(Gpt(vocabulary, options), plan.schedule, ranks_.rank())
                                : part_of(ParallelGpt(vocabulary, options, tensor_), plan.schedule,
                                          ranks_.rank())),
        layout_(*parts_.stages, parts_.names, ranks_),
        pipeline_(
            parts_.stages->stages(),
            [vocabulary, group = tensor_](const bp::Tensor& logits, const bp::Tensor& targets) {
              const bp::Tensor flat = logits.flatten(0, 1);
              return group.size() == 1
                         ? bp::cross_entropy(flat, targets)
                         : bd::parallel_cross_entropy(flat, targets, vocabulary, group);
            },
            ranks_,
            {.schedule = plan.schedule, .activation_shape = {options.context, options.width}}) {
    if (plan.tensor > 1) tensor_layout_.emplace(*parts_.stages, tensor_);
  }

  bp::nn::Module& model() override { return *parts_.stages; }
  std::vector<bp::Tensor> parameters() override { return parts_.stages->parameters(); }
  bp::Tensor loss(const Windows& windows) override {
    return pipeline_.forward(windows.inputs, windows.targets);
  }
  bp::Tensor loss_and_gradients(const Windows& windows) override {
    // Stages draw different numbers. Ranks of one stage draw the same ones.
    bp::Generator& generator = ranks_.device().generator();
    generator.set_seed(hashed(generator.state().seed, ranks_.rank()));
    bp::Tensor loss = pipeline_.forward_backward(windows.inputs, windows.targets);
    if (data_.size() > 1) bd::average_gradients(parameters(), data_);
    return loss;
  }
  void clip(double most) override {
    const bp::Tensor squares = tensor_layout_ ? tensor_layout_->squared_grad_norm(parameters())
                                              : bp::squared_grad_norm(parameters());
    ranks_.all_reduce(squares).join();
    bp::scale_grads_to_norm(parameters(), squares, most);
  }
  bool runs_together() const override { return true; }
  uint32_t data_rank() const override { return data_.rank(); }
  uint32_t data_size() const override { return data_.size(); }
  Checkpoint checkpoint(const bp::AdamW& optimizer, int64_t step) override {
    return {whole(parts_.stages->state_dict()), whole(optimizer.state_dict()), step};
  }
  void load(const Checkpoint& checkpoint, bp::AdamW& optimizer) override {
    parts_.stages->load_state_dict(part(checkpoint.weights));
    optimizer.load_state_dict(part(checkpoint.state));
  }
  std::vector<bd::Piece> pieces(const bp::TensorMap& state) override {
    return with_prefixes(placed(bd::pieces_of(parts_.stages->state_dict())),
                         placed(bd::pieces_of(state)));
  }

 private:
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
  std::optional<bd::ParallelLayout> tensor_layout_;
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
