#include "conformance/dist/crew.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "conformance/dist/launch_folder.hpp"
#include "conformance/json_file.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"

extern char** environ;

namespace bp::conformance::dist {
namespace {

constexpr int kTickMs = 50;
constexpr double kDyingSeconds = 10;
constexpr size_t kOutputTail = 2048;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Both ends are closed when a rank begins; the read end does not block.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "no pipe for a rank");
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return ends;
}

// Starts a program with `output` as its output and `line`, if it is not -1, as kRankFd, in a
// process group of its own and without blocked or ignored signals. Returns an errno.
int spawn(const std::string& program, const std::vector<std::string>& words, int line, int output,
          pid_t& out_pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  if (line >= 0) posix_spawn_file_actions_adddup2(&actions, line, kRankFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> texts = words;
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  const int error =
      posix_spawnp(&out_pid, program.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Returns the words of a launcher's command for `ranks` ranks.
std::vector<std::string> words_of(const std::string& launcher, size_t ranks) {
  std::vector<std::string> words;
  std::istringstream text(launcher);
  for (std::string word; text >> word;) {
    words.push_back(word == "{}" ? std::to_string(ranks) : std::move(word));
  }
  return words;
}

void close_if_open(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

Crew::Crew(const std::vector<RankTask>& tasks, int interrupt_fd, const std::string& launcher)
    : interrupt_fd_(interrupt_fd) {
  ranks_.reserve(tasks.size());
  try {
    if (!launcher.empty()) {
      launch(tasks, launcher);
    } else {
      for (const RankTask& task : tasks) start(task);
    }
  } catch (...) {
    kill_all();
    throw;
  }
}

Crew::~Crew() { kill_all(); }

void Crew::start(const RankTask& task) {
  std::array<int, 2> line = make_pipe(), output = make_pipe();
  Rank rank;
  const int error = spawn("/proc/self/exe", {"bp-conformance", "--rank", json_text(to_json(task))},
                          line[1], output[1], rank.pid);
  close(line[1]);
  close(output[1]);
  rank.line_fd = line[0];
  rank.output_fd = output[0];
  if (error != 0) {
    close_if_open(rank.line_fd);
    close_if_open(rank.output_fd);
    throw std::system_error(error, std::generic_category(), "posix_spawn of a rank");
  }
  ranks_.push_back(std::move(rank));
}

// The first rank has what all of them print.
void Crew::launch(const std::vector<RankTask>& tasks, const std::string& launcher) {
  folder_ = std::make_unique<LaunchFolder>(tasks);
  std::vector<std::string> words = words_of(launcher, tasks.size());
  const std::string program = words.at(0);
  words.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  words.insert(words.end(), {"--rank", folder_->path()});
  for (size_t i = 0; i < tasks.size(); ++i) ranks_.emplace_back().line_fd = folder_->open_lines(i);
  std::array<int, 2> output = make_pipe();
  const int error = spawn(program, words, -1, output[1], launcher_);
  close(output[1]);
  ranks_[0].output_fd = output[0];
  if (error == 0) return;
  launcher_ = -1;
  throw NotLoaded("the launcher " + program +
                  " does not start: " + std::generic_category().message(error));
}

bool Crew::has_launcher_ended() {
  if (launcher_ > 0 && waitpid(launcher_, &launcher_status_, WNOHANG) != 0) launcher_ = -1;
  return launcher_ < 0;
}

// A launcher that is asked to end also ends what it has started.
void Crew::end_launcher() {
  for (const int signal : {0, SIGTERM, SIGKILL}) {
    if (signal != 0 && launcher_ > 0) kill(launcher_, signal);
    const auto start = Clock::now();
    while (!has_launcher_ended() && seconds_since(start) < kDyingSeconds) usleep(1000);
  }
}

// The group of a process that a launcher has started is the launcher's.
void Crew::kill_rank(const Rank& rank) {
  if (rank.pid > 0) kill(folder_ == nullptr ? -rank.pid : rank.pid, SIGKILL);
}

void Crew::kill_all() {
  for (Rank& rank : ranks_) {
    close_if_open(rank.line_fd);
    close_if_open(rank.output_fd);
    if (!rank.has_ended) kill_rank(rank);
  }
  if (folder_ != nullptr) {
    if (launcher_ > 0) kill(launcher_, SIGTERM);
    return end_launcher();
  }
  // A process that hangs in a driver may survive even this. It is not waited for without end.
  const auto start = Clock::now();
  for (Rank& rank : ranks_) {
    while (!rank.has_ended && seconds_since(start) < kDyingSeconds) {
      rank.has_ended = waitpid(rank.pid, nullptr, WNOHANG) != 0;
      if (!rank.has_ended) usleep(1000);
    }
    rank.has_ended = true;
  }
}

void Crew::continue_rank(uint32_t rank) {
  ranks_[rank].is_held = false;
  ranks_[rank].spoken = Clock::now();
  if (!ranks_[rank].has_ended) kill(ranks_[rank].pid, SIGCONT);
}

void Crew::poll_once() {
  std::vector<pollfd> sources = {{interrupt_fd_, POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    // A negative descriptor is ignored.
    sources.push_back({rank.line_fd, POLLIN, 0});
    sources.push_back({rank.output_fd, POLLIN, 0});
  }
  if (poll(sources.data(), sources.size(), kTickMs) <= 0) return;
  if ((sources[0].revents & POLLIN) != 0) {
    kill_all();
    throw Interrupted();
  }
}

void Crew::take_line(uint32_t index, const std::string& text, const OnLine& on_line) {
  Rank& rank = ranks_[index];
  const Line line = Line::parse(text, nullptr, false);
  if (!line.is_object() || !line.contains("say") || !line["say"].is_string()) return;
  const std::string said = line["say"].get<std::string>();
  rank.spoken = Clock::now();
  if (said == "hello") rank.has_loaded = true;
  if (said == "done") rank.has_said_done = true;
  if (said == "begin") rank.last = line.value("text", "");
  if (said == "step") rank.last = "the call after '" + line.value("step", "") + "'";
  on_line(index, line);
}

void Crew::read_lines(uint32_t index, const OnLine& on_line) {
  Rank& rank = ranks_[index];
  std::array<char, 1 << 14> bytes;
  for (;;) {
    const ssize_t size = rank.line_fd < 0 ? 0 : ::read(rank.line_fd, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size == 0) close_if_open(rank.line_fd);
    if (size <= 0) break;
    rank.text.append(bytes.data(), static_cast<size_t>(size));
  }
  size_t begin = 0;
  for (size_t end; (end = rank.text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    take_line(index, rank.text.substr(begin, end - begin), on_line);
  }
  rank.text.erase(0, begin);
}

// Reads at most as much as a pipe holds, so that a flood of output does not keep the supervisor
// from its deadlines.
void Crew::read_output(Rank& rank) {
  std::array<char, 1 << 16> bytes;
  if (rank.output_fd < 0) return;
  const ssize_t size = ::read(rank.output_fd, bytes.data(), bytes.size());
  if (size == 0) close_if_open(rank.output_fd);
  if (size <= 0) return;
  rank.output.append(bytes.data(), static_cast<size_t>(size));
  if (rank.output.size() > kOutputTail) rank.output.erase(0, rank.output.size() - kOutputTail);
}

void Crew::kill_silent(double load_seconds, double silence_seconds) {
  for (Rank& rank : ranks_) {
    if (rank.has_ended || rank.is_held) continue;
    const double silent = seconds_since(rank.spoken);
    if (rank.end.is_killed) {
      if (seconds_since(rank.killed) < kDyingSeconds) continue;
      rank.has_ended = true;
      rank.end.text += ", but did not die of SIGKILL";
      close_if_open(rank.line_fd);
      close_if_open(rank.output_fd);
      continue;
    }
    if (silent < (rank.has_loaded ? silence_seconds : load_seconds)) continue;
    rank.end.is_killed = true;
    rank.killed = Clock::now();
    rank.end.text = "it was in " + (rank.last.empty() ? "the load of the backend" : rank.last) +
                    " for " + fixed_text(silent, 1) + " s, and was killed";
    kill_rank(rank);
  }
}

// Only the launcher learns how the process of a rank has ended.
bool Crew::reap_launched(uint32_t index, const OnLine& on_line) {
  Rank& rank = ranks_[index];
  if (rank.pid < 0) rank.pid = folder_->process_of(index);
  const bool is_gone = rank.pid > 0 && kill(rank.pid, 0) != 0;
  if (!is_gone && !has_launcher_ended()) return false;
  rank.has_ended = true;
  read_lines(index, on_line);
  if (index != 0) close_if_open(rank.line_fd);
  rank.end.is_done = rank.has_said_done;
  if (rank.end.is_killed || rank.end.is_done) return true;
  rank.end.text = "the process ended" + (rank.last.empty() ? "" : " in " + rank.last);
  return true;
}

bool Crew::reap(uint32_t index, const OnLine& on_line) {
  Rank& rank = ranks_[index];
  if (rank.has_ended) return true;
  if (folder_ != nullptr) return reap_launched(index, on_line);
  siginfo_t info = {};
  const int options = WEXITED | WNOHANG | WNOWAIT;
  if (waitid(P_PID, static_cast<id_t>(rank.pid), &info, options) != 0 || info.si_pid == 0) {
    return false;
  }
  // The process still has its id, so that no other group is killed: only what the backend has
  // started and left behind.
  kill(-rank.pid, SIGKILL);
  ProcessEnd end;
  while (waitpid(rank.pid, &end.wait_status, 0) < 0 && errno == EINTR) continue;
  rank.has_ended = true;
  read_lines(index, on_line);
  read_output(rank);
  close_if_open(rank.line_fd);
  close_if_open(rank.output_fd);
  rank.end.is_done = rank.has_said_done && end.is_clean();
  if (!rank.end.is_killed && !rank.end.is_done) {
    rank.end.text = end.text() + (rank.last.empty() ? "" : " in " + rank.last);
  }
  if (!rank.end.is_done && !rank.output.empty()) {
    rank.end.text += "; it printed: " + clean_text(rank.output, LineBreaks::kEscape);
  }
  return true;
}

// A process may fail behind its last word.
void Crew::judge_launcher() {
  end_launcher();
  read_output(ranks_[0]);
  const ProcessEnd end{.wait_status = launcher_status_};
  const bool is_done = std::ranges::all_of(ranks_, [](const Rank& r) { return r.end.is_done; });
  if (is_done && end.is_clean()) return;
  if (is_done) {
    ranks_[0].end.is_done = false;
    ranks_[0].end.text = "all ranks are done, and the launcher fails: " + end.text();
  }
  for (Rank& rank : ranks_) {
    if (rank.end.is_done || ranks_[0].output.empty()) continue;
    rank.end.text += "; the launcher printed: " + clean_text(ranks_[0].output, LineBreaks::kEscape);
    return;
  }
}

std::vector<RankEnd> Crew::run(double load_seconds, double silence_seconds, const OnLine& on_line,
                               const std::function<void()>& on_tick) {
  for (bool has_any = true; has_any;) {
    poll_once();
    has_any = false;
    for (uint32_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].has_ended) continue;
      read_lines(i, on_line);
      read_output(ranks_[i]);
      has_any |= !reap(i, on_line);
    }
    kill_silent(load_seconds, silence_seconds);
    if (on_tick) on_tick();
  }
  if (folder_ != nullptr) judge_launcher();
  std::vector<RankEnd> ends;
  for (Rank& rank : ranks_) ends.push_back(std::move(rank.end));
  return ends;
}

}  // namespace bp::conformance::dist
