// Runs schedules without doing their work: finds what is wrong with them, and what they cost.
#include <algorithm>
#include <cmath>
#include <optional>

#include "backplane/runtime/distributed/pipeline_schedule.hpp"
#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

using enum PipelineWork;

// The three things that happen once to each micro-batch at each stage. A kBackward is both halves.
enum class Half : uint8_t { kForward, kInput, kWeight };
constexpr size_t kHalves = 3;

std::string place_text(uint32_t rank, size_t number) {
  return "action " + std::to_string(number) + " of rank " + std::to_string(rank);
}

// Runs the actions of all ranks as early as they can start.
class Run {
 public:
  Run(const PipelineSchedule& schedule, const PipelineDurations& durations)
      : schedule_(schedule),
        durations_(durations),
        ends_(kHalves * schedule.micro_batch_count * schedule.stage_count()),
        next_(schedule.rank_count()),
        free_(schedule.rank_count()) {
    timeline_.ranks.resize(schedule.rank_count());
  }

  // Returns "" if all actions ran, else what the first rank that cannot go on waits for.
  std::string run() {
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (uint32_t rank = 0; rank < schedule_.rank_count(); ++rank) {
        while (next_[rank] < schedule_.ranks[rank].size() && try_next(rank)) has_moved = true;
      }
    }
    for (uint32_t rank = 0; rank < schedule_.rank_count(); ++rank) {
      if (next_[rank] < schedule_.ranks[rank].size()) return stuck_text(rank);
    }
    return "";
  }

  PipelineTimeline take_timeline() { return std::move(timeline_); }

 private:
  std::optional<double>& end_of(Half half, uint32_t micro_batch, uint32_t stage) {
    const size_t place = size_t{micro_batch} * schedule_.stage_count() + stage;
    return ends_[place * kHalves + static_cast<size_t>(half)];
  }

  // Returns when the result of `half` at `stage` is on `rank`; nothing if it did not run yet.
  std::optional<double> arrival(Half half, uint32_t micro_batch, uint32_t stage, uint32_t rank) {
    const std::optional<double> end = end_of(half, micro_batch, stage);
    if (!end || schedule_.stage_ranks[stage] == rank) return end;
    return *end + durations_.communication;
  }

  // Returns when an action of `rank` has all that it needs; nothing if it has to wait.
  std::optional<double> ready_time(const PipelineAction& action, uint32_t rank) {
    const auto [work, micro_batch, stage] = action;
    if (work == kForward) {
      return stage == 0 ? std::optional(0.0)
                        : arrival(Half::kForward, micro_batch, stage - 1, rank);
    }
    if (work == kBackwardWeight) return end_of(Half::kInput, micro_batch, stage);
    const std::optional<double> own = end_of(Half::kForward, micro_batch, stage);
    if (!own || stage + 1 == schedule_.stage_count()) return own;
    const std::optional<double> behind = arrival(Half::kInput, micro_batch, stage + 1, rank);
    return behind ? std::optional(std::max(*own, *behind)) : std::nullopt;
  }

  bool try_next(uint32_t rank) {
    const PipelineAction& action = schedule_.ranks[rank][next_[rank]];
    const std::optional<double> ready = ready_time(action, rank);
    if (!ready) return false;
    const double begin = std::max(*ready, free_[rank]);
    const double end = begin + durations_.of(action.work);
    if (action.work == kForward) end_of(Half::kForward, action.micro_batch, action.stage) = end;
    if (action.work == kBackward || action.work == kBackwardInput) {
      end_of(Half::kInput, action.micro_batch, action.stage) = end;
    }
    timeline_.ranks[rank].push_back({begin, end});
    timeline_.step_time = std::max(timeline_.step_time, end);
    free_[rank] = end;
    ++next_[rank];
    return true;
  }

  std::string stuck_text(uint32_t rank) {
    const auto [work, micro_batch, stage] = schedule_.ranks[rank][next_[rank]];
    std::string needed;
    if (work == kForward) {
      needed = describe({kForward, micro_batch, stage - 1});
    } else if (work == kBackwardWeight) {
      needed = describe({kBackwardInput, micro_batch, stage});
    } else if (!end_of(Half::kForward, micro_batch, stage)) {
      needed = describe({kForward, micro_batch, stage});
    } else {
      needed = describe({kBackward, micro_batch, stage + 1});
    }
    return place_text(rank, next_[rank]) + ", " + describe({work, micro_batch, stage}) +
           ", waits for ever for the " + needed + "; allowed: an order in which all ranks go on";
  }

  const PipelineSchedule& schedule_;
  const PipelineDurations& durations_;
  std::vector<std::optional<double>> ends_;
  std::vector<size_t> next_;
  std::vector<double> free_;
  PipelineTimeline timeline_;
};

std::string problem_of_stages(const PipelineSchedule& schedule) {
  if (schedule.micro_batch_count == 0 || schedule.ranks.empty() || schedule.stage_ranks.empty()) {
    return "there are " + std::to_string(schedule.micro_batch_count) + " micro-batches, " +
           std::to_string(schedule.rank_count()) + " ranks and " +
           std::to_string(schedule.stage_count()) + " stages; allowed: at least 1 of each";
  }
  for (uint32_t stage = 0; stage < schedule.stage_count(); ++stage) {
    if (schedule.stage_ranks[stage] < schedule.rank_count()) continue;
    return "stage " + std::to_string(stage) + " is on rank " +
           std::to_string(schedule.stage_ranks[stage]) + "; allowed: below " +
           std::to_string(schedule.rank_count()) + ", the number of ranks";
  }
  return "";
}

// Notes an action in `counts`, which has each Half of each micro-batch at each stage. Returns "",
// or what is wrong with the action.
std::string problem_of_action(const PipelineSchedule& schedule, const PipelineAction& action,
                              uint32_t rank, std::vector<uint8_t>& counts) {
  if (action.micro_batch >= schedule.micro_batch_count || action.stage >= schedule.stage_count()) {
    return "; allowed: micro-batches below " + std::to_string(schedule.micro_batch_count) +
           " and stages below " + std::to_string(schedule.stage_count());
  }
  if (schedule.stage_ranks[action.stage] != rank) {
    return "; allowed: the stages of this rank, and this one is on rank " +
           std::to_string(schedule.stage_ranks[action.stage]);
  }
  const size_t place = size_t{action.micro_batch} * schedule.stage_count() + action.stage;
  const auto note = [&](Half half) {
    return counts[place * kHalves + static_cast<size_t>(half)]++ == 0;
  };
  bool is_new = true;
  if (action.work == kForward) is_new = note(Half::kForward);
  if (action.work == kBackward || action.work == kBackwardInput) is_new = note(Half::kInput);
  if (action.work == kBackward || action.work == kBackwardWeight) {
    is_new = note(Half::kWeight) && is_new;
  }
  return is_new ? "" : ", comes twice; allowed: once";
}

std::string problem_of_actions(const PipelineSchedule& schedule) {
  std::vector<uint8_t> counts(kHalves * schedule.micro_batch_count * schedule.stage_count());
  for (uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const PipelineAction& action = schedule.ranks[rank][i];
      const std::string problem = problem_of_action(schedule, action, rank, counts);
      if (!problem.empty()) return place_text(rank, i) + ", " + describe(action) + problem;
    }
  }
  const auto missing = std::ranges::find(counts, 0);
  if (missing == counts.end()) return "";
  const auto place = static_cast<size_t>(missing - counts.begin());
  constexpr PipelineWork kWork[] = {kForward, kBackwardInput, kBackwardWeight};
  const auto stage = static_cast<uint32_t>(place / kHalves % schedule.stage_count());
  const auto micro_batch = static_cast<uint32_t>(place / kHalves / schedule.stage_count());
  return "the " + describe({kWork[place % kHalves], micro_batch, stage}) + " is missing on rank " +
         std::to_string(schedule.stage_ranks[stage]);
}

void check_durations(const PipelineDurations& durations) {
  for (const double duration : {durations.forward, durations.backward_input,
                                durations.backward_weight, durations.communication}) {
    if (std::isfinite(duration) && duration >= 0) continue;
    throw Error(BP_INVALID_ARGUMENT, "timeline_of: a duration is " + std::to_string(duration) +
                                         "; allowed: finite, and 0 or more");
  }
}

}  // namespace

std::string problem_of(const PipelineSchedule& schedule) {
  std::string problem = problem_of_stages(schedule);
  if (problem.empty()) problem = problem_of_actions(schedule);
  const PipelineDurations durations;
  if (problem.empty()) problem = Run(schedule, durations).run();
  return problem;
}

void check_schedule(const PipelineSchedule& schedule) {
  const std::string problem = problem_of(schedule);
  if (problem.empty()) return;
  throw Error(BP_INVALID_ARGUMENT, "the schedule '" + schedule.name + "': " + problem);
}

std::string describe(const PipelineAction& action) {
  return std::string(name_of(action.work)) + " of micro-batch " +
         std::to_string(action.micro_batch) + " at stage " + std::to_string(action.stage);
}

std::string describe(const PipelineSchedule& schedule) {
  constexpr char kLetters[] = {'F', 'B', 'I', 'W'};
  std::string text;
  for (const auto& actions : schedule.ranks) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (i > 0) text += ' ';
      text += kLetters[static_cast<size_t>(actions[i].work)];
      text += std::to_string(actions[i].micro_batch) + "." + std::to_string(actions[i].stage);
    }
    text += "\n";
  }
  return text;
}

double PipelineDurations::of(PipelineWork work) const {
  if (work == kForward) return forward;
  if (work == kBackwardInput) return backward_input;
  return work == kBackwardWeight ? backward_weight : backward_input + backward_weight;
}

double PipelineTimeline::bubble_share() const {
  double busy = 0;
  for (const auto& intervals : ranks) {
    for (const auto& [begin, end] : intervals) busy += end - begin;
  }
  const double all = step_time * static_cast<double>(ranks.size());
  return all == 0 ? 0 : std::max(0.0, 1 - busy / all);
}

PipelineTimeline timeline_of(const PipelineSchedule& schedule, const PipelineDurations& durations) {
  check_schedule(schedule);
  check_durations(durations);
  Run run(schedule, durations);
  run.run();
  return run.take_timeline();
}

std::vector<uint32_t> largest_alive_counts(const PipelineSchedule& schedule) {
  check_schedule(schedule);
  std::vector<uint32_t> largest;
  for (const auto& actions : schedule.ranks) {
    uint32_t alive = 0, most = 0;
    for (const PipelineAction& action : actions) {
      if (action.work == kForward) most = std::max(most, ++alive);
      if (action.work == kBackward || action.work == kBackwardWeight) --alive;
    }
    largest.push_back(most);
  }
  return largest;
}

}  // namespace bp::distributed
