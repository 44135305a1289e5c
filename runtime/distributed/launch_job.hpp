// The processes that bp-launch starts: one for each rank, in process groups of their own. When a
// rank is lost, all ranks start again, or those that are left.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/distributed/rendezvous.hpp"
#include "runtime/distributed/socket.hpp"

namespace bp::distributed {

struct JobOptions {
  uint32_t least_ranks = 1, most_ranks = 1;  // A job begins with the most.
  uint32_t max_restarts = 0;
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

  // Returns 0, or the exit code of the rank that failed first in the last restart: 128 plus the
  // number of the signal if a signal ended it.
  int run();

  // Runs the ranks that this launcher has in a job of several. Returns the exit code of the job.
  int run_with(Rendezvous& others);

 private:
  // What a rank writes to stdout or to stderr.
  struct Stream {
    Socket pipe;
    std::string line;  // The part of a line that has come.
    bool is_error = false;
  };
  struct Rank {
    uint32_t slot = 0;  // Its place among options_.most_ranks, which it keeps in all restarts.
    pid_t process = 0;
    bool has_ended = false;
    std::vector<Stream> streams;
  };

  // How a rank failed.
  struct End {
    uint32_t rank;
    int code;  // The exit code, or the number of the signal.
    bool by_signal;
  };

  int run_once();
  void follow_others();
  bool can_restart(int code) const;
  void choose_ranks();
  std::string log_file(uint32_t rank) const;
  std::string number_of(uint32_t rank) const;
  void start(uint32_t rank);
  [[noreturn]] void become_rank(uint32_t rank, int out, int error) const;
  void set_variables(uint32_t rank) const;
  void poll_once();
  void read_stream(uint32_t rank, Stream& stream) const;
  void write_lines(uint32_t rank, Stream& stream, bool is_end) const;
  void read_signals();
  void look_for_ends();
  void handle_end(const End& end);
  bool was_killed(const End& end) const;
  void judge();
  void end_all(int number);
  void signal_all(int number) const;
  bool has_open_streams() const;
  uint32_t running_count() const;

  const JobOptions options_;
  Rendezvous* others_ = nullptr;  // Set if there are other launchers.
  uint32_t round_ = 0;            // The start of the job that the others agreed on last.
  bool is_stopping_ = false;      // Whether the others want the ranks to end.
  Start start_;
  Socket signals_;
  std::vector<Rank> ranks_;
  uint32_t restarts_ = 0;         // How often all ranks were started again.
  std::vector<uint32_t> lost_;    // Slots whose ranks were lost, in that order.
  bool was_told_to_end_ = false;  // By a signal to the launcher.
  bool has_killed_ = false;       // Whether ranks that went on got SIGKILL.
  std::vector<End> failures_;     // Since the last start, until one is found to be the first.
  std::optional<int> failure_;    // The exit code of the first failure since the last start.
  std::optional<Deadline> verdict_time_;  // When the first failure is decided.
  std::optional<Deadline> kill_time_;     // When SIGKILL follows.
  std::optional<Deadline> drain_time_;    // When output is given up, after all ranks have ended.
};

}  // namespace bp::distributed
