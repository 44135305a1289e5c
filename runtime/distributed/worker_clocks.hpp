// Which push of a worker a parameter server applies next, and which worker may go on: the rules of
// the staleness bound (parameter_server.hpp) without tensors or threads.
//
// The life of a step: push() - next_to_apply() - next_to_release(). Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace bp::distributed {

class WorkerClocks {
 public:
  WorkerClocks(uint32_t worker_count, uint64_t staleness);

  // Begins with workers that have taken no step, and none of which has finished. Counters stay.
  void restart();

  void push(uint32_t worker);    // The gradients of `worker` are there.
  void finish(uint32_t worker);  // The worker has no more steps.

  // Returns a worker whose push is to be applied now, and counts its step. Pushes are applied as
  // they came. With a staleness of 0 they are applied in the order of the workers.
  std::optional<uint32_t> next_to_apply();

  // Returns a worker whose push was applied, and that may begin its next step.
  std::optional<uint32_t> next_to_release();

  bool is_finished(uint32_t worker) const { return phases_[worker] == Phase::kFinished; }
  bool all_finished() const;

  uint64_t steps(uint32_t worker) const { return steps_[worker]; }  // Since restart().
  uint64_t largest_lead() const { return largest_lead_; }
  uint64_t held_back() const { return held_back_; }

 private:
  enum class Phase { kComputes, kPushed, kApplied, kHeldBack, kFinished };

  bool has_turn(uint32_t worker) const;
  uint64_t lead(uint32_t worker) const;

  const uint64_t staleness_;
  std::vector<Phase> phases_;
  std::vector<uint64_t> steps_;
  std::deque<uint32_t> pushed_;  // Workers in the phase kPushed, as they came.
  uint64_t largest_lead_ = 0;
  uint64_t held_back_ = 0;
};

}  // namespace bp::distributed
