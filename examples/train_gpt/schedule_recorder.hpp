// Records what a rank does in each step of training, for bp-simulate: how long it computes between
// calls of its groups, the calls, and where it waits for them. The lines are described in
// runtime/simulate/recorded.hpp of the tree.
#pragma once

#include <chrono>
#include <fstream>
#include <memory>
#include <string>

#include "backplane/runtime/runtime.hpp"

class ScheduleRecorder {
 public:
  // Writes to `path`, with the rank behind a dot. Throws if the file cannot be written. Steps are
  // slower while they are recorded: the rank waits for its device at each line.
  ScheduleRecorder(const std::string& path, uint32_t rank, uint32_t ranks, bp::Device device);

  // For GroupOptions. The recorder must outlive the groups. Calls of groups with fewer ranks than
  // the job throw within a step: the simulator would not know their ranks.
  std::shared_ptr<const bp::distributed::CallObserver> observer();

  // What lies between these two is a step. end_step() throws if the lines cannot be written.
  void begin_step();
  void end_step();

 private:
  using Clock = std::chrono::steady_clock;

  void add_compute();
  void add_calls(const bp::distributed::ProcessGroup& group, uint64_t number,
                 std::span<const bp::distributed::Collective> calls);
  void add_wait(const std::string& group, uint64_t number, bool has_ended);

  const std::string path_;
  const uint32_t ranks_;
  const bp::Device device_;
  std::ofstream file_;
  bool is_in_step_ = false;
  Clock::time_point begin_;               // Of the step.
  Clock::time_point end_ = Clock::now();  // Of the step before, or of the constructor.
  Clock::time_point since_;               // What is computed from here on is not written yet.
};
