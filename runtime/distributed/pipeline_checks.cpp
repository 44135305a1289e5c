#include "runtime/distributed/pipeline_checks.hpp"

#include <algorithm>
#include <utility>

#include "registry/tensors/floats.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/sharder.hpp"

namespace bp::distributed {
namespace {

// Returns what a sharded stage cannot do, or "".
std::string problem_of_sharding(const nn::Module& stage, const PipelineOptions& options) {
  if (std::ranges::count(stage.hook_names(), Sharder::kHookName) == 0) return "";
  if (!options.shared_weights.empty()) {
    return "a stage is sharded by FullyShardedDataParallel, and there are shared weights; "
           "allowed: one of both, since the shards have the gradients";
  }
  const auto is_absent = [](const Tensor& parameter) {
    return parameter.get()->buffer == nullptr && parameter.numel() > 0;
  };
  const auto is_half = [](const PipelineAction& action) {
    return action.work == PipelineWork::kBackwardWeight;
  };
  const bool has_halves = std::ranges::any_of(options.schedule.ranks, [&](const auto& of_rank) {
    return std::ranges::any_of(of_rank, is_half);
  });
  if (!has_halves || std::ranges::none_of(stage.parameters(), is_absent)) return "";
  return "the schedule '" + options.schedule.name +
         "' has backwards in halves, and a stage is sharded at stage 3, whose parameters have no "
         "memory at the second half; allowed: FsdpOptions::stage of 1 and 2, or whole backwards";
}

}  // namespace

std::string describe_kind(bp_dtype dtype, IntList shape) {
  return dtype_text(dtype) + " " + to_string(shape);
}

std::string problem_of_arguments(const std::vector<std::shared_ptr<nn::Module>>& stages,
                                 const PipelineParallel::Loss& loss, const ProcessGroup& group,
                                 const PipelineOptions& options) {
  const PipelineSchedule& schedule = options.schedule;
  if (std::string problem = problem_of(schedule); !problem.empty()) {
    return "the schedule '" + schedule.name + "': " + problem;
  }
  if (schedule.rank_count() != group.size()) {
    return "the schedule '" + schedule.name + "' is for " + std::to_string(schedule.rank_count()) +
           " ranks; allowed: " + std::to_string(group.size()) + ", the size of the group";
  }
  if (const size_t wanted = schedule.stages_of(group.rank()).size(); wanted != stages.size()) {
    return "there are " + std::to_string(stages.size()) +
           " stages; allowed: " + std::to_string(wanted) + ", which the schedule '" +
           schedule.name + "' has for this rank";
  }
  if (std::ranges::find(stages, nullptr) != stages.end()) {
    return "a stage is NULL; allowed: modules";
  }
  if (!loss && schedule.stage_ranks.back() == group.rank()) {
    return "there is no loss; allowed: a function, on the rank of the last stage";
  }
  if (!tensors::is_plain_float(options.activation_dtype)) {
    return "activation_dtype is " + dtype_text(options.activation_dtype) +
           "; allowed: f16, bf16, f32, f64";
  }
  if (std::ranges::any_of(options.activation_shape, [](int64_t extent) { return extent < 0; })) {
    return "activation_shape is " + to_string(options.activation_shape) +
           "; allowed: extents of 0 and above";
  }
  for (const auto& stage : stages) {
    if (std::string problem = problem_of_sharding(*stage, options); !problem.empty()) {
      return problem;
    }
  }
  return "";
}

std::string difference_of_options(const PipelineOptions& options, const ProcessGroup& group) {
  std::string problem = first_difference(group, "the schedule of rank", describe(options.schedule));
  if (!problem.empty()) return problem;
  const std::string kind = describe_kind(options.activation_dtype, options.activation_shape);
  return first_difference(group, "option", "activations of " + kind + " behind the rows\n");
}

std::string problem_of_batch(const Tensor& x, const Tensor& targets, int64_t micro_batch_count) {
  for (const auto& [tensor, name] : {std::pair(&x, "x"), std::pair(&targets, "targets")}) {
    if (!*tensor) return std::string(name) + " is empty; allowed: a tensor, on every rank";
    const int64_t rows = tensor->ndim() > 0 ? tensor->shape(0) : 0;
    if (rows > 0 && rows % micro_batch_count == 0) continue;
    return std::string(name) + " has the shape " + to_string(tensor->shape()) +
           "; allowed along axis 0: a positive multiple of " + std::to_string(micro_batch_count) +
           ", the number of micro-batches";
  }
  return "";
}

std::string problem_of_call(const ProcessGroup& group, std::string own, int64_t rows,
                            bool has_backward) {
  if (!own.empty()) own = describe(group) + ": " + own;
  const std::vector<int64_t> told =
      gather_numbers(group, own.empty() ? 2 * rows + (has_backward ? 1 : 0) : -1);
  if (const auto first = std::ranges::find(told, -1); first != told.end()) {
    return broadcast_text(group, own, static_cast<uint32_t>(first - told.begin()));
  }
  const auto text_of = [&](size_t rank) {
    return "rank " + std::to_string(rank) + " calls " +
           (told[rank] % 2 == 1 ? "forward_backward()" : "forward()") + " with " +
           std::to_string(told[rank] / 2) + " rows";
  };
  for (size_t rank = 1; rank < told.size(); ++rank) {
    if (told[rank] == told[0]) continue;
    return text_of(rank) + " and " + text_of(0) + "; allowed: the same on all ranks";
  }
  return "";
}

}  // namespace bp::distributed
