// The processes that bp-launch starts: one for each rank, in process groups of their own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/distributed/socket.hpp"

namespace bp::distributed {

struct JobOptions {
  uint32_t rank_count = 1;
  std::string log_dir;  // Empty: output goes to that of the launcher, line by line.
  uint16_t port = 0;    // 0: a free one.
  std::chrono::duration<double> grace{10};  // From the first signal to SIGKILL.
  std::vector<std::string> command;
};

// Runs until all ranks have ended. It handles SIGINT and SIGTERM of the calling process, which has
// no other threads.
class Job {
 public:
  explicit Job(JobOptions options);
  Job(const Job&) = delete;

  // Returns 0, or the exit code of the rank that failed first: 128 plus the number of the signal if
  // a signal ended it.
  int run();

 private:
  // What a rank writes to stdout or to stderr.
  struct Stream {
    Socket pipe;
    std::string line;  // The part of a line that has come.
    bool is_error = false;
  };
  struct Rank {
    pid_t process = 0;
    bool has_ended = false;
    std::vector<Stream> streams;
  };

  void start(uint32_t rank);
  [[noreturn]] void become_rank(uint32_t rank, int out, int error) const;
  void set_variables(uint32_t rank) const;
  void poll_once();
  void read_stream(uint32_t rank, Stream& stream) const;
  void write_lines(uint32_t rank, Stream& stream, bool is_end) const;
  void read_signals();
  void look_for_ends();
  void handle_end(uint32_t rank, int code, bool by_signal);
  void end_all(int number);
  void signal_all(int number) const;
  bool has_open_streams() const;
  uint32_t running_count() const;

  const JobOptions options_;
  uint16_t port_ = 0;
  Socket signals_;
  std::vector<Rank> ranks_;
  std::optional<int> failure_;          // The exit code of the first failure.
  std::optional<Deadline> kill_time_;   // When SIGKILL follows.
  std::optional<Deadline> drain_time_;  // When output is given up, after all ranks have ended.
};

}  // namespace bp::distributed
