#include "backplane/runtime/distributed/pipeline.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/autograd/split_backward.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/pipeline_checks.hpp"
#include "runtime/distributed/pipeline_program.hpp"
#include "runtime/distributed/shared_weights.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::distributed {
namespace {

using bp::detail::SplitBackward;
using enum PipelineWork;

// Keeps the memory of a tensor that was made on another stream until the current stream is done
// with it.
void use_on_current_stream(const Tensor& tensor) {
  bp_block* const block = tensor.impl()->storage->block;
  if (block == nullptr) return;  // It has no elements.
  const bp_target& target = tensor.device().target();
  bp_stream* const stream = current_stream(target);
  check(bp_block_record_stream(block, stream != nullptr ? stream : target.default_stream),
        "block.record_stream");
}

// Ends the work of the other ranks, and says why this one failed. If a group has failed before, the
// rank that failed first ends both groups, and the others keep its name.
[[noreturn]] void abort_step(const ProcessGroup& group, const ProcessGroup& gradient_group,
                             const SharedWeights& shared, bp_status code, const std::string& text) {
  std::string before = group.error_text();
  if (before.empty()) before = gradient_group.error_text();
  if (before.empty()) {
    group.abort();
    gradient_group.abort();
  }
  shared.abort();
  throw Error(code, "PipelineParallel: " + describe(group) + ": " + text +
                        (before.empty() ? "" : " (" + before + ")"));
}

}  // namespace

struct PipelineParallel::State {
  std::map<uint32_t, std::shared_ptr<nn::Module>> stages;  // By the number in the whole model.
  Loss loss;
  ProcessGroup group;           // For activations, and for what ranks agree on.
  ProcessGroup gradient_group;  // Gradients do not queue behind activations.
  PipelineOptions options;
  SharedWeights shared;
  PipelineProgram whole_program, forward_program;
};

// One step: all micro-batches of one batch.
class PipelineParallel::Step {
 public:
  Step(const State& state, const Tensor& x, const Tensor& targets, bool has_backward)
      : s_(state),
        x_(x),
        targets_(targets),
        has_backward_(has_backward),
        last_stage_(state.options.schedule.stage_count() - 1) {
    const IntList behind(s_.options.activation_shape);
    shape_ = {x.shape(0) / count()};
    shape_.insert(shape_.end(), behind.begin(), behind.end());
  }

  Tensor run() {
    for (const PipelineProgramStep& step : has_backward_ ? s_.whole_program : s_.forward_program) {
      submit(step.calls);
      if (step.action) run_action(*step.action);
    }
    return mean_loss();
  }

 private:
  // A tensor that a stage has been given, or waits for.
  struct Arrival {
    Tensor tensor;
    Work work;
    bool is_received = false;
  };
  // What the backward of a micro-batch at a stage needs.
  struct Alive {
    Tensor x, y;  // y is the loss at the last stage. x has no gradient at the first one.
    std::unique_ptr<SplitBackward> halves;
  };
  using Place = std::pair<uint32_t, uint32_t>;  // Micro-batch and stage.

  int64_t count() const { return s_.options.schedule.micro_batch_count; }

  void submit(const std::vector<PipelineProgramStep::Call>& calls) {
    for (const bool is_gradient : {false, true}) {
      std::vector<PipelineProgramStep::Call> of_kind;
      std::ranges::copy_if(calls, std::back_inserter(of_kind), [&](const auto& call) {
        return call.transfer.is_gradient == is_gradient;
      });
      if (!of_kind.empty()) submit(of_kind, is_gradient ? s_.gradient_group : s_.group);
    }
  }

  // Calls without a send need nothing that is computed here, so they wait only for what the stream
  // of the group does. Memory for what comes is taken on that stream in any case.
  void submit(const std::vector<PipelineProgramStep::Call>& calls, const ProcessGroup& group) {
    std::vector<Collective> made;
    std::vector<PipelineTransfer> received;
    for (const auto& [transfer, is_send, peer] : calls) {
      if (is_send) {
        made.push_back(Collective::send_to(results_.extract(transfer).mapped(), peer));
        continue;
      }
      const StreamGuard guard(group.stream());
      const Tensor place = empty(shape_, s_.options.activation_dtype, group.device());
      made.push_back(Collective::receive_from(place, peer));
      arrivals_[transfer] = {.tensor = place, .work = {}, .is_received = true};
      received.push_back(transfer);
    }
    std::optional<StreamGuard> guard;
    if (received.size() == calls.size()) guard.emplace(group.stream());
    const Work work = group.submit(made);
    for (const PipelineTransfer& transfer : received) arrivals_[transfer].work = work;
  }

  // Returns the tensor that `action` needs of another stage, for the current stream.
  Tensor take(const PipelineAction& action) {
    const auto entry = arrivals_.extract(*input_of(action, last_stage_ + 1));
    const Arrival& arrival = entry.mapped();
    if (arrival.is_received) {
      arrival.work.join();
      use_on_current_stream(arrival.tensor);
    }
    return arrival.tensor;
  }

  // Keeps what `action` made for the stage that needs it.
  void give(const PipelineAction& action, const Tensor& result) {
    const auto transfer = result_of(action, last_stage_ + 1);
    if (!transfer) return;
    const Tensor plain = result.detach().contiguous();
    if (s_.stages.contains(transfer->to_stage)) {
      arrivals_[*transfer] = {.tensor = plain, .work = {}};
    } else {
      results_[*transfer] = plain;
    }
  }

  void run_action(const PipelineAction& action) {
    const Place place{action.micro_batch, action.stage};
    switch (action.work) {
      case kForward:
        run_forward(action);
        break;
      case kBackward: {
        const Alive alive = std::move(alive_.extract(place).mapped());
        alive.y.backward(gradient_of_result(action, alive.y));
        if (action.stage > 0) give(action, gradient_of_input(action, alive.x.grad()));
        break;
      }
      case kBackwardInput: {
        Alive& alive = alive_.at(place);
        const Tensor input = action.stage > 0 ? alive.x : Tensor();
        const Tensor gradient = gradient_of_result(action, alive.y);
        alive.halves = std::make_unique<SplitBackward>(std::exchange(alive.y, {}), input, gradient);
        if (action.stage > 0) give(action, alive.halves->take_input_gradient());
        break;
      }
      case kBackwardWeight:
        alive_.extract(place).mapped().halves->run_weights();
        break;
    }
  }

  void run_forward(const PipelineAction& action) {
    Alive alive;
    if (action.stage == 0) {
      alive.x = part_of(x_, action.micro_batch);
    } else {
      alive.x = take(action);
      if (has_backward_) alive.x.set_requires_grad();
    }
    alive.y = (*s_.stages.at(action.stage))(alive.x);
    if (action.stage == last_stage_) {
      alive.y = s_.loss(alive.y, part_of(targets_, action.micro_batch));
      add_loss(alive.y);
    } else {
      check_activation(action, alive.y);
      give(action, alive.y);
    }
    if (!has_backward_) return;
    if (!alive.y.requires_grad()) {
      fail(action, "the result depends on nothing that requires a gradient");
    }
    alive_[{action.micro_batch, action.stage}] = std::move(alive);
  }

  Tensor part_of(const Tensor& whole, uint32_t micro_batch) const {
    const int64_t rows = whole.shape(0) / count();
    return whole.narrow(0, micro_batch * rows, rows);
  }

  void check_activation(const PipelineAction& action, const Tensor& y) const {
    if (y.shape() == IntList(shape_) && y.dtype() == s_.options.activation_dtype &&
        y.device() == s_.group.device()) {
      return;
    }
    fail(action, "the result is " + describe_kind(y.dtype(), y.shape()) + " on " +
                     y.device().name() +
                     "; allowed: " + describe_kind(s_.options.activation_dtype, shape_) + " on " +
                     s_.group.device().name() + ", as the options say");
  }

  void add_loss(const Tensor& loss) {
    if (loss.numel() != 1) {
      throw Error(BP_INVALID_ARGUMENT,
                  "the loss has the shape " + to_string(loss.shape()) + "; allowed: one element");
    }
    const NoGradGuard no_grad;
    const Tensor own = loss.detach().to(BP_F32).reshape({});
    loss_ = loss_ ? loss_ + own : own.clone();
  }

  // Each micro-batch counts as much in the mean loss.
  Tensor gradient_of_result(const PipelineAction& action, const Tensor& y) {
    if (action.stage < last_stage_) return take(action);
    return full(y.shape(), 1.0 / static_cast<double>(count()), y.dtype(), y.device());
  }

  Tensor gradient_of_input(const PipelineAction& action, const Tensor& gradient) const {
    if (!gradient) fail(action, "the result does not depend on the input of the stage");
    return gradient;
  }

  Tensor mean_loss() {
    const NoGradGuard no_grad;
    Tensor mean =
        loss_ ? loss_ / static_cast<double>(count()) : empty({}, BP_F32, s_.group.device());
    s_.group.broadcast(mean, s_.options.schedule.stage_ranks.back()).join();
    return mean;
  }

  [[noreturn]] static void fail(const PipelineAction& action, const std::string& text) {
    throw Error(BP_INVALID_ARGUMENT, describe(action) + ": " + text);
  }

  const State& s_;
  const Tensor x_, targets_;
  const bool has_backward_;
  const uint32_t last_stage_;
  std::vector<int64_t> shape_;  // Of an activation.
  std::map<PipelineTransfer, Tensor> results_;
  std::map<PipelineTransfer, Arrival> arrivals_;
  std::map<Place, Alive> alive_;
  Tensor loss_;  // The sum over the micro-batches, on the rank of the last stage.
};

PipelineParallel::PipelineParallel(std::vector<std::shared_ptr<nn::Module>> stages, Loss loss,
                                   const ProcessGroup& group, PipelineOptions options) {
  std::string problem = problem_of_arguments(stages, loss, group, options);
  if (!problem.empty()) problem = bp::distributed::describe(group) + ": " + problem;
  problem = first_problem(group, problem);
  if (problem.empty()) problem = difference_of_options(options, group);
  if (problem.empty()) {
    problem = SharedWeights::problem_of(options.shared_weights, stages, group);
  }
  if (!problem.empty()) throw Error(BP_INVALID_ARGUMENT, "PipelineParallel: " + problem);
  const auto gradient_group = group.split(0, group.rank(), group.name() + ".gradients");
  SharedWeights shared(options.shared_weights, group);
  state_ = std::make_unique<State>(State{.stages = {},
                                         .loss = std::move(loss),
                                         .group = group,
                                         .gradient_group = *gradient_group,
                                         .options = std::move(options),
                                         .shared = std::move(shared),
                                         .whole_program = {},
                                         .forward_program = {}});
  const PipelineSchedule& schedule = state_->options.schedule;
  const std::vector<uint32_t> numbers = schedule.stages_of(group.rank());
  for (size_t i = 0; i < stages.size(); ++i) state_->stages[numbers[i]] = std::move(stages[i]);
  state_->whole_program = make_program(schedule, group.rank(), true);
  state_->forward_program = make_program(schedule, group.rank(), false);
}

PipelineParallel::~PipelineParallel() = default;

const ProcessGroup& PipelineParallel::group() const { return state_->group; }
const PipelineSchedule& PipelineParallel::schedule() const { return state_->options.schedule; }

bool PipelineParallel::is_copy(const Tensor& parameter) const {
  return state_->shared.is_copy(parameter);
}

Tensor PipelineParallel::run(const Tensor& x, const Tensor& targets, bool has_backward) {
  const ProcessGroup& group = state_->group;
  const int64_t count = state_->options.schedule.micro_batch_count;
  std::string problem = problem_of_batch(x, targets, count);
  const int64_t rows = problem.empty() ? x.shape(0) : 0;
  problem = problem_of_call(group, problem, rows, has_backward);
  if (!problem.empty()) throw Error(BP_INVALID_ARGUMENT, "PipelineParallel: " + problem);
  SharedWeights& shared = state_->shared;
  try {
    if (has_backward) shared.begin_step();
    Tensor loss = Step(*state_, x, targets, has_backward).run();
    if (has_backward) shared.sum_gradients();
    return loss;
  } catch (const Error& error) {
    abort_step(group, state_->gradient_group, shared, error.code(), error.what());
  } catch (const std::exception& error) {
    abort_step(group, state_->gradient_group, shared, BP_INTERNAL, error.what());
  }
}

Tensor PipelineParallel::forward_backward(const Tensor& x, const Tensor& targets) {
  const GradModeGuard mode(true);
  return run(x, targets, true);
}

Tensor PipelineParallel::forward(const Tensor& x, const Tensor& targets) {
  const NoGradGuard no_grad;
  return run(x, targets, false);
}

}  // namespace bp::distributed
