#include "runtime/simulate/stage_program.hpp"

#include <optional>

#include "runtime/simulate/program_writer.hpp"

namespace bp::simulate {
namespace {

namespace bd = bp::distributed;
using bd::PipelineWork;

class Stage {
 public:
  Stage(const Job& job, const Layout& layout, const bd::PipelineSchedule& pipeline, uint32_t pipe,
        std::vector<std::string>& labels)
      : j_(job),
        l_(layout),
        pipeline_(pipeline),
        pipe_(pipe),
        w_(labels),
        layers_(job.model.layers / pipeline.stage_count()),
        attention_s_(seconds_of(attention_of(job, layout), job.device)),
        mlp_s_(seconds_of(mlp_of(job, layout), job.device)),
        score_s_(score_seconds(job, layout)),
        backward_counts_(unit_count()) {}

  Program write() {
    if (gathers_once()) gather_all();
    for (const bd::PipelineAction& action : pipeline_.ranks[pipe_]) write(action);
    w_.be_at(kNone, kNone);
    flush_bucket();
    if (last_reduce_) w_.need(*last_reduce_);
    w_.compute("optimizer", optimizer_seconds(j_, l_, pipe_));
    return w_.take();
  }

 private:
  bool has_data_calls() const { return l_.data > 1 && !l_.data_is_free; }
  bool gathers_once() const {
    return has_data_calls() && (l_.shard_stage == 1 || l_.shard_stage == 2);
  }
  bool is_first(uint32_t stage) const { return stage == 0; }
  bool is_last(uint32_t stage) const { return stage + 1 == pipeline_.stage_count(); }

  // Units: the layers of this rank, and then the root unit with embeddings or head.
  uint32_t layers_of_rank() const { return layers_ * l_.stages_per_rank; }
  uint32_t root() const { return layers_of_rank(); }
  bool has_root() const { return pipe_ == 0 || pipe_ + 1 == l_.pipe; }
  uint32_t unit_count() const { return layers_of_rank() + (has_root() ? 1 : 0); }
  uint32_t unit_of(uint32_t stage, uint32_t layer) const {
    return stage / l_.pipe * layers_ + layer;
  }
  double unit_bytes(uint32_t unit) const {
    const double layer = j_.model.layer_parameters() / l_.tensor;
    if (unit != root()) return layer * j_.element_bytes;
    return (parameters_of_rank(j_, l_, pipe_) - layers_of_rank() * layer) * j_.element_bytes;
  }

  uint32_t gather(uint32_t unit, std::optional<uint32_t> after) {
    return w_.early_call(kGatherStream, kGatherAxis, CallKind::kAllGather, unit_bytes(unit),
                         "gather of unit " + std::to_string(unit), after);
  }

  // Gathers all units in the order of their first use: embeddings come before the layers, and a
  // head comes after them.
  void gather_all() {
    gathered_.resize(unit_count());
    const bool is_root_first = has_root() && pipe_ == 0;
    if (is_root_first) gathered_[root()] = gather(root(), std::nullopt);
    for (uint32_t unit = 0; unit < layers_of_rank(); ++unit) {
      gathered_[unit] = gather(unit, std::nullopt);
    }
    if (has_root() && !is_root_first) gathered_[root()] = gather(root(), std::nullopt);
  }

  // A unit is used from begin_visit() to end_visit(). The root unit stays whole from its forward
  // on.
  void begin_visit(uint32_t unit) {
    if (!has_data_calls() || l_.shard_stage == 0) return;
    if (gathers_once()) return w_.need(gathered_[unit]);
    const size_t visit = visit_ends_.size();
    std::optional<uint32_t> after;
    if (visit > l_.prefetch) after = visit_ends_[visit - l_.prefetch - 1];
    w_.need(gather(unit, after));
  }
  void end_visit() {
    if (w_.last_compute()) visit_ends_.push_back(*w_.last_compute());
  }

  // Gradients of a unit are there. They are complete for a micro-batch after the unit's last use.
  void end_backward(uint32_t unit) {
    // The root unit is used for embeddings and for the head.
    const uint32_t uses = unit == root() && l_.pipe == 1 ? 2 : 1;
    if (++backward_counts_[unit] % uses != 0) return;
    const bool is_last_one = backward_counts_[unit] == uses * pipeline_.micro_batch_count;
    if (!has_data_calls() || (l_.shard_stage < 2 && !is_last_one)) return;
    const std::string label = "reduction of unit " + std::to_string(unit);
    if (l_.shard_stage > 0) {
      last_reduce_ =
          w_.call(kReduceStream, kReduceAxis, CallKind::kReduceScatter, unit_bytes(unit), label);
      return;
    }
    bucket_ += unit_bytes(unit);
    while (bucket_ >= l_.bucket_bytes) reduce_bucket(l_.bucket_bytes);
  }
  void reduce_bucket(double bytes) {
    last_reduce_ =
        w_.call(kReduceStream, kReduceAxis, CallKind::kAllReduce, bytes, "reduction of a bucket");
    bucket_ -= bytes;
  }
  void flush_bucket() {
    if (bucket_ > 0) reduce_bucket(bucket_);
  }

  double border_bytes() const {
    const double bytes =
        double{1} * l_.micro_batch * j_.model.context * j_.model.width * j_.element_bytes;
    return l_.sequence_parallel ? bytes / l_.tensor : bytes;
  }
  double tensor_bytes() const {
    return double{1} * l_.micro_batch * j_.model.context * j_.model.width * j_.element_bytes;
  }

  // Adds up partial results of the tensor-parallel ranks, and returns the last call.
  uint32_t tensor_reduce(const char* label) {
    if (!l_.sequence_parallel) {
      return w_.call(kTensorStream, kTensorAxis, CallKind::kAllReduce, tensor_bytes(), label);
    }
    return w_.call(kTensorStream, kTensorAxis, CallKind::kReduceScatter, tensor_bytes(), label);
  }
  void tensor_gather(const char* label) {
    if (l_.tensor == 1 || !l_.sequence_parallel) return;
    w_.need(w_.call(kTensorStream, kTensorAxis, CallKind::kAllGather, tensor_bytes(), label));
  }

  void forward_half(const std::string& label, double seconds) {
    tensor_gather("gather of a forward");
    w_.compute("forward " + label, seconds);
    if (l_.tensor > 1) w_.need(tensor_reduce("reduction of a forward"));
  }

  // `parts` says which halves of the backward are computed.
  void backward_half(const std::string& label, double seconds, double repeated_s,
                     PipelineWork parts) {
    if (parts == PipelineWork::kBackwardWeight) {
      return w_.compute("backward of the weights, " + label, seconds);
    }
    tensor_gather("gather of a backward");
    if (l_.tensor == 1) {
      const double count = parts == PipelineWork::kBackward ? 2 : 1;
      return w_.compute("backward " + label, count * seconds + repeated_s);
    }
    w_.compute("backward of the input, " + label, seconds + repeated_s);
    const uint32_t reduction = tensor_reduce("reduction of a backward");
    if (parts == PipelineWork::kBackward) w_.compute("backward of the weights, " + label, seconds);
    w_.need(reduction);
  }

  void forward(uint32_t stage) {
    if (is_first(stage)) {
      begin_visit(root());
      w_.compute("forward embedding", embedding_seconds(j_, l_));
      end_visit();
    } else if (l_.pipe > 1) {
      w_.receive(kReceiveForward, rank_of(stage - 1), border_bytes(), "receive forward");
    }
    for (uint32_t layer = 0; layer < layers_; ++layer) {
      begin_visit(unit_of(stage, layer));
      forward_half("attention", attention_s_);
      forward_half("mlp", mlp_s_);
      end_visit();
    }
    if (is_last(stage)) {
      if (l_.pipe > 1) begin_visit(root());
      w_.compute("forward head", head_seconds(j_, l_));
      end_visit();
    } else if (l_.pipe > 1) {
      w_.send(kSendForward, rank_of(stage + 1), border_bytes(), "send forward");
    }
  }

  void backward(uint32_t stage, PipelineWork parts) {
    const bool has_input = parts != PipelineWork::kBackwardWeight;
    const bool has_weights = parts != PipelineWork::kBackwardInput;
    const double count = parts == PipelineWork::kBackward ? 2 : 1;
    if (is_last(stage)) {
      w_.compute("backward head", count * head_seconds(j_, l_));
      end_visit();
      if (has_weights) end_backward(root());
    } else if (has_input && l_.pipe > 1) {
      w_.receive(kReceiveBackward, rank_of(stage + 1), border_bytes(), "receive backward");
    }
    for (uint32_t layer = layers_; layer-- > 0;) {
      begin_visit(unit_of(stage, layer));
      backward_layer(parts);
      end_visit();
      if (has_weights) end_backward(unit_of(stage, layer));
    }
    if (!is_first(stage)) {
      if (has_input && l_.pipe > 1) {
        w_.send(kSendBackward, rank_of(stage - 1), border_bytes(), "send backward");
      }
    } else if (has_weights) {
      w_.compute("backward embedding", embedding_seconds(j_, l_));
      end_backward(root());
    }
  }

  void backward_layer(PipelineWork parts) {
    if (l_.recompute == Recompute::kFull && parts != PipelineWork::kBackwardWeight) {
      forward_half("attention again", attention_s_);
      forward_half("mlp again", mlp_s_);
    }
    backward_half("mlp", mlp_s_, 0, parts);
    backward_half("attention", attention_s_, score_s_, parts);
  }

  uint32_t rank_of(uint32_t stage) const { return pipeline_.stage_ranks[stage]; }

  void write(const bd::PipelineAction& action) {
    w_.be_at(action.micro_batch, action.stage);
    if (action.work == PipelineWork::kForward) return forward(action.stage);
    backward(action.stage, action.work);
  }

  const Job& j_;
  const Layout& l_;
  const bd::PipelineSchedule& pipeline_;
  const uint32_t pipe_;
  Writer w_;
  const uint32_t layers_;  // Of a stage.
  const double attention_s_, mlp_s_, score_s_;
  std::vector<uint32_t> gathered_;    // The gathers at the begin of the step.
  std::vector<uint32_t> visit_ends_;  // The last operation of each visit of a unit.
  std::vector<uint32_t> backward_counts_;
  double bucket_ = 0;
  std::optional<uint32_t> last_reduce_;
};

}  // namespace

std::vector<std::string> stream_names() {
  return {"compute",      "tensor",          "gather",        "reduce",
          "send forward", "receive forward", "send backward", "receive backward"};
}

Program make_stage_program(const Job& job, const Layout& layout,
                           const bd::PipelineSchedule& pipeline, uint32_t pipe,
                           std::vector<std::string>& labels) {
  return Stage(job, layout, pipeline, pipe, labels).write();
}

}  // namespace bp::simulate
