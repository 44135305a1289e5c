// A worker process: this program once more, with two pipes for records and one for its output. Its
// parent is a warden (warden.hpp), whose parent is this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "conformance/process/process_end.hpp"
#include "conformance/runner/protocol.hpp"
#include "conformance/runner/setup.hpp"

namespace bp::conformance {

// The reason why a wait for a record ended.
enum class Waited { kRecord, kGone, kDeadline, kInterrupted, kBroken };

class WorkerProcess {
 public:
  // Starts a worker in a process group of its own. `interrupt_fd` becomes readable when the run is
  // interrupted. Throws std::system_error.
  WorkerProcess(const WorkerSetup& setup, int interrupt_fd);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;

  // Returns false if the worker is gone.
  bool send(RecordType type, const nlohmann::json& payload);

  // Waits for a record, and collects what the worker prints in the meantime.
  Waited wait(Clock::time_point deadline, Record& out_record);

  // Returns the problem that a kBroken wait found.
  const std::string& problem() const { return problem_; }

  // Returns what the worker printed since the last call, up to 64 KiB. `out_bytes` is the size of
  // all of it.
  std::string take_output(uint64_t& out_bytes);

  // Waits until the process is gone. After the deadline it sends SIGTERM, and 2 s later SIGKILL. It
  // also kills every process that the worker left behind.
  ProcessEnd finish(Clock::time_point deadline);

  // Returns the process id of the worker; 0 before the worker has sent a record.
  pid_t pid();

 private:
  void drain_output();
  // Returns false at the end of the stream.
  bool read_records();
  // Waits for the end of the warden, and so of the worker, and collects what the worker prints.
  bool wait_for_end(Clock::time_point deadline);
  // Returns false if the warden ended without a report.
  bool take_warden_report(ProcessEnd& end);

  pid_t warden_ = -1;
  pid_t worker_ = 0;
  int warden_pid_fd_ = -1;
  int report_fd_ = -1;
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
