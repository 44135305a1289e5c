// Records what a rank does in each step of training, for bp-simulate: how long it computes between
// calls of its groups, the calls, and where it waits for them. The lines are described in
// runtime/simulate/recorded.hpp of the tree.
#pragma once

#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backplane/runtime/runtime.hpp"

class ScheduleRecorder {
 public:
  // Writes to `path`, with the rank behind a dot. Throws if the file cannot be written. Steps are
  // slower while they are recorded: the rank waits for its device at each line.
  ScheduleRecorder(const std::string& path, uint32_t rank, uint32_t ranks, bp::Device device);

  // For GroupOptions of the group of all ranks. The recorder must outlive it, and the groups that
  // are made from it.
  std::shared_ptr<const bp::distributed::CallObserver> observer();

  // What lies between these two is a step. end_step() throws if the lines cannot be written.
  void begin_step();
  void end_step();

 private:
  using Clock = std::chrono::steady_clock;
  struct Group {
    std::vector<uint32_t> ranks;  // In the job.
    const bp_stream* stream;
  };

  const std::string* group_of_current_stream() const;
  void add_compute();
  void add_group(const bp::distributed::ProcessGroup& group, std::span<const uint32_t> members);
  void add_calls(const bp::distributed::ProcessGroup& group, uint64_t number,
                 std::span<const bp::distributed::Collective> calls);
  void add_wait(const std::string& group, uint64_t number, bool has_ended);

  const std::string path_;
  const bp::Device device_;
  std::ofstream file_;
  std::map<std::string, Group> groups_;
  bool is_in_step_ = false;
  Clock::time_point begin_;               // Of the step.
  Clock::time_point end_ = Clock::now();  // Of the step before, or of the constructor.
  Clock::time_point since_;               // What is computed from here on is not written yet.
};
