#include "runtime/distributed/worker_clocks.hpp"

#include <algorithm>

namespace bp::distributed {

WorkerClocks::WorkerClocks(uint32_t worker_count, uint64_t staleness)
    : staleness_(staleness), phases_(worker_count), steps_(worker_count) {
  restart();
}

void WorkerClocks::restart() {
  std::ranges::fill(phases_, Phase::kComputes);
  std::ranges::fill(steps_, uint64_t{0});
  pushed_.clear();
}

void WorkerClocks::push(uint32_t worker) {
  phases_[worker] = Phase::kPushed;
  pushed_.push_back(worker);
}

void WorkerClocks::finish(uint32_t worker) { phases_[worker] = Phase::kFinished; }

// In lockstep a push waits for those of the workers before it. Those behind it cannot be ahead.
bool WorkerClocks::has_turn(uint32_t worker) const {
  if (staleness_ > 0) return true;
  for (uint32_t other = 0; other < worker; ++other) {
    if (!is_finished(other) && steps_[other] <= steps_[worker]) return false;
  }
  return true;
}

std::optional<uint32_t> WorkerClocks::next_to_apply() {
  const auto next =
      std::ranges::find_if(pushed_, [&](uint32_t worker) { return has_turn(worker); });
  if (next == pushed_.end()) return std::nullopt;
  const uint32_t worker = *next;
  pushed_.erase(next);
  phases_[worker] = Phase::kApplied;
  ++steps_[worker];
  return worker;
}

// Returns how many steps a worker, which has not finished, is ahead of the slowest one.
uint64_t WorkerClocks::lead(uint32_t worker) const {
  uint64_t least = steps_[worker];
  for (uint32_t other = 0; other < steps_.size(); ++other) {
    if (!is_finished(other)) least = std::min(least, steps_[other]);
  }
  return steps_[worker] - least;
}

std::optional<uint32_t> WorkerClocks::next_to_release() {
  for (uint32_t worker = 0; worker < phases_.size(); ++worker) {
    Phase& phase = phases_[worker];
    if (phase != Phase::kApplied && phase != Phase::kHeldBack) continue;
    const uint64_t ahead = lead(worker);
    if (ahead > staleness_) {
      if (phase == Phase::kApplied) ++held_back_;
      phase = Phase::kHeldBack;
      continue;
    }
    phase = Phase::kComputes;
    largest_lead_ = std::max(largest_lead_, ahead);
    return worker;
  }
  return std::nullopt;
}

bool WorkerClocks::all_finished() const {
  return std::ranges::all_of(phases_, [](Phase phase) { return phase == Phase::kFinished; });
}

}  // namespace bp::distributed
