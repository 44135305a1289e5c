// A worker process: this program once more, with two pipes for records and one for what it prints.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "conformance/runner/protocol.hpp"
#include "conformance/runner/setup.hpp"

namespace bp::conformance {

using Clock = std::chrono::steady_clock;

// How a process ended.
struct ProcessEnd {
  int wait_status = 0;
  bool is_abandoned = false;  // It did not even die of SIGKILL.

  bool is_clean() const { return !is_abandoned && wait_status == 0; }
  // "died of signal 11 (SIGSEGV)", "the process exited with code 3".
  std::string text() const;
};

// What a wait for a record ended with.
enum class Waited { kRecord, kGone, kDeadline, kInterrupted, kBroken };

class WorkerProcess {
 public:
  // Starts a worker in a process group of its own. `interrupt_fd` becomes readable when the run is
  // interrupted. Throws std::system_error.
  WorkerProcess(const WorkerSetup& setup, int interrupt_fd);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;

  // False if the worker is gone.
  bool send(RecordType type, const nlohmann::json& payload);

  // Waits for a record, and takes what the worker prints meanwhile.
  Waited wait(Clock::time_point deadline, Record& out_record);

  // What a kBroken wait found.
  const std::string& problem() const { return problem_; }

  // What the worker printed since the last call: at most 64 KiB, of out_bytes in all.
  std::string take_output(uint64_t& out_bytes);

  // Waits until the process is gone; past the deadline it gets SIGTERM, and 2 s later SIGKILL.
  // Whatever it left in its process group is killed too.
  ProcessEnd finish(Clock::time_point deadline);

  pid_t pid() const { return pid_; }

 private:
  void drain_output();
  // False at the end of the stream.
  bool read_records();
  // Waits for the end of the process, taking what it prints.
  bool wait_for_end(Clock::time_point deadline);

  pid_t pid_ = -1;
  int pid_fd_ = -1;
  int command_fd_ = -1;
  int record_fd_ = -1;
  int output_fd_ = -1;
  int interrupt_fd_ = -1;
  bool is_reaped_ = false;
  RecordReader reader_;
  std::string problem_;
  std::string output_;
  uint64_t output_bytes_ = 0;
};

}  // namespace bp::conformance
