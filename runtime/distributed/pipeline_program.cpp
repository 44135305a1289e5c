#include "runtime/distributed/pipeline_program.hpp"

#include <algorithm>

namespace bp::distributed {
namespace {

using enum PipelineWork;

// A transfer of the rank, and the time of its place in the order.
struct Timed {
  double time;
  PipelineProgramStep::Call call;
};

// Returns the transfers that the rank takes part in, in the order of all ranks.
std::vector<Timed> transfers_of(const PipelineSchedule& schedule, const PipelineTimeline& timeline,
                                uint32_t rank) {
  std::vector<Timed> transfers;
  for (uint32_t sender = 0; sender < schedule.rank_count(); ++sender) {
    for (size_t i = 0; i < schedule.ranks[sender].size(); ++i) {
      const auto transfer = result_of(schedule.ranks[sender][i], schedule.stage_count());
      if (!transfer) continue;
      const uint32_t receiver = schedule.stage_ranks[transfer->to_stage];
      if (sender == receiver || (sender != rank && receiver != rank)) continue;
      const uint32_t peer = sender == rank ? receiver : sender;
      transfers.push_back({timeline.ranks[sender][i].end, {*transfer, sender == rank, peer}});
    }
  }
  std::ranges::sort(transfers, [](const Timed& a, const Timed& b) {
    return a.time != b.time ? a.time < b.time : a.call.transfer < b.call.transfer;
  });
  return transfers;
}

}  // namespace

std::optional<PipelineTransfer> result_of(const PipelineAction& action, uint32_t stage_count) {
  const auto [work, micro_batch, stage] = action;
  if (work == kForward) {
    if (stage + 1 == stage_count) return std::nullopt;
    return PipelineTransfer{false, micro_batch, stage + 1};
  }
  if (work == kBackwardWeight || stage == 0) return std::nullopt;
  return PipelineTransfer{true, micro_batch, stage - 1};
}

std::optional<PipelineTransfer> input_of(const PipelineAction& action, uint32_t stage_count) {
  const auto [work, micro_batch, stage] = action;
  const bool is_forward = work == kForward;
  if (work == kBackwardWeight || stage == (is_forward ? 0 : stage_count - 1)) return std::nullopt;
  return PipelineTransfer{!is_forward, micro_batch, stage};
}

PipelineProgram make_program(const PipelineSchedule& schedule, uint32_t rank, bool has_backward) {
  const PipelineTimeline timeline = timeline_of(schedule, {});
  const std::vector<Timed> transfers = transfers_of(schedule, timeline, rank);
  PipelineProgram program;
  PipelineProgramStep step;
  size_t next = 0;
  const auto add_transfers = [&](double until) {
    for (; next < transfers.size() && transfers[next].time <= until; ++next) {
      const auto& call = transfers[next].call;
      if (has_backward || !call.transfer.is_gradient) step.calls.push_back(call);
    }
  };
  for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
    const PipelineAction& action = schedule.ranks[rank][i];
    add_transfers(timeline.ranks[rank][i].begin);
    if (!has_backward && action.work != kForward) continue;
    step.action = action;
    program.push_back(std::move(step));
    step = {};
  }
  add_transfers(timeline.step_time);
  if (!step.calls.empty()) program.push_back(std::move(step));
  return program;
}

}  // namespace bp::distributed
