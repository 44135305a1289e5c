// The processes of all ranks of a group: this program once more, as `--rank TASK`, with a pipe on
// which each says what it does, and one for what it prints. Or one launcher, such as mpirun, starts
// them as `--rank FOLDER`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/dist/task.hpp"
#include "conformance/process/process_end.hpp"

namespace bp::conformance::dist {

class LaunchFolder;

// Thrown when the user has interrupted the run. All processes have been killed.
struct Interrupted {};

// How the process of a rank ended.
struct RankEnd {
  bool is_killed = false;  // It was silent for too long, and was killed.
  bool is_done = false;    // It said "done", and ended well.
  std::string text;        // How it ended, and in what, with the end of what it printed.
};

class Crew {
 public:
  using Line = nlohmann::json;
  using OnLine = std::function<void(uint32_t rank, const Line& line)>;

  // Starts the processes. Throws std::system_error, and NotLoaded if a launcher does not start.
  // `interrupt_fd` becomes readable when the run is
  // interrupted. `launcher` is the command of a launcher, such as "mpirun -n {}", where {} stands
  // for the number of ranks; "" if there is none.
  Crew(const std::vector<RankTask>& tasks, int interrupt_fd, const std::string& launcher = "");
  ~Crew();
  Crew(const Crew&) = delete;

  // Waits until all ranks have ended, and calls `on_line` for each line. A rank that says nothing
  // for `silence_seconds` is killed; until it says "hello" it has `load_seconds`. `on_tick` is
  // called a few times in each second. Throws Interrupted.
  std::vector<RankEnd> run(double load_seconds, double silence_seconds, const OnLine& on_line,
                           const std::function<void()>& on_tick = nullptr);

  // A rank that has stopped itself may be silent until continue_rank().
  void hold_rank(uint32_t rank) { ranks_[rank].is_held = true; }
  void continue_rank(uint32_t rank);

 private:
  struct Rank {
    pid_t pid = -1;
    int line_fd = -1, output_fd = -1;
    std::string text;    // What was read and is no whole line yet.
    std::string output;  // The end of what it printed.
    std::string last;    // What it began last.
    Clock::time_point spoken = Clock::now();
    Clock::time_point killed;
    bool has_loaded = false, is_held = false, has_said_done = false, has_ended = false;
    RankEnd end;
  };

  void start(const RankTask& task);
  void launch(const std::vector<RankTask>& tasks, const std::string& launcher);
  void poll_once();
  void read_lines(uint32_t index, const OnLine& on_line);
  void read_output(Rank& rank);
  void take_line(uint32_t index, const std::string& text, const OnLine& on_line);
  void kill_silent(double load_seconds, double silence_seconds);
  bool reap(uint32_t index, const OnLine& on_line);
  bool reap_launched(uint32_t index, const OnLine& on_line);
  bool has_launcher_ended();
  void end_launcher();
  void judge_launcher();
  void kill_rank(const Rank& rank);
  void kill_all();

  const int interrupt_fd_;
  std::unique_ptr<LaunchFolder> folder_;  // Set if there is a launcher.
  pid_t launcher_ = -1;
  int launcher_status_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace bp::conformance::dist
