// A rank that has ended is not waited for before the job ends. So its process group keeps its
// number, and signals for what the rank started can never reach somebody else.
#include "runtime/distributed/launch_job.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

constexpr size_t kLongestLine = 65536;  // A longer line is shown in parts.
constexpr auto kDrainTime = std::chrono::seconds(1);
// A rank that a signal ends closes its connections before its end shows. Others may fail and end in
// between, so the first end that shows need not be the first failure.
constexpr auto kVerdictTime = std::chrono::milliseconds(500);
constexpr int kCannotRun = 126, kNotFound = 127;  // As a shell has them.

[[noreturn]] void fail_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, number);
  return set;
}

void write_all(FILE* file, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

void report(const std::string& text) { write_all(stderr, "bp-launch: " + text + "\n"); }

std::string ranks_text(size_t count) {
  return std::to_string(count) + (count == 1 ? " rank" : " ranks");
}

}  // namespace

Job::Job(JobOptions options) : options_(std::move(options)) {
  if (!options_.log_dir.empty()) std::filesystem::create_directories(options_.log_dir);
  const sigset_t set = handled_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = Socket(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) fail_errno("signalfd");
}

int Job::run() {
  for (;; ++restarts_) {
    choose_ranks();
    start_ = {.world_size = static_cast<uint32_t>(ranks_.size()), .restart_count = restarts_};
    // The port stays reserved until rank 0 listens, and longer: it may do so late.
    const ReservedPort free_port(start_.master_host);
    start_.master_port = options_.port != 0 ? options_.port : free_port.number();
    const int code = run_once();
    if (!can_restart(code)) return code;
  }
}

int Job::run_with(Rendezvous& others) {
  others_ = &others;
  for (;;) {
    const Order order = others.order();
    if (order.verb == Verb::kEnd) {
      if (!order.text.empty()) report("the job ends: " + order.text);
      return order.code;
    }
    if (order.verb != Verb::kRun || order.round == round_) {
      poll_once();
      continue;
    }
    report(order.text);
    round_ = order.round;
    start_ = others.start();
    ranks_.clear();
    for (uint32_t slot = 0; slot < options_.most_ranks; ++slot) ranks_.emplace_back().slot = slot;
    run_once();
    if (!failure_ && !is_stopping_) others.report_success(round_);
    others.report_stopped(round_);
  }
}

int Job::run_once() {
  failures_.clear();
  failure_.reset();
  kill_time_.reset();
  drain_time_.reset();
  has_killed_ = is_stopping_ = false;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) start(rank);
  while (running_count() != 0 || has_open_streams() || verdict_time_) {
    if (running_count() == 0 && !drain_time_) drain_time_ = deadline_after(kDrainTime);
    const Deadline now = std::chrono::steady_clock::now();
    if (verdict_time_ && (*verdict_time_ <= now || running_count() == 0)) {
      judge();
      continue;
    }
    if (drain_time_ && *drain_time_ <= now) break;
    if (kill_time_ && *kill_time_ <= now) {
      kill_time_.reset();
      has_killed_ = true;
      report("ranks still run after the grace period; they get SIGKILL");
      signal_all(SIGKILL);
    }
    poll_once();
  }
  // What failed ranks started and left behind ends with them.
  if (failure_ || is_stopping_) signal_all(SIGKILL);
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    for (Stream& stream : ranks_[rank].streams) write_lines(rank, stream, true);
    waitpid(std::exchange(ranks_[rank].process, 0), nullptr, 0);
  }
  kill_time_.reset();
  drain_time_.reset();
  return failure_.value_or(0);
}

// ---- Restarts ----------------------------------------------------------------------------------

bool Job::can_restart(int code) const {
  // Nothing changes a program that cannot be run.
  if (code == 0 || was_told_to_end_ || code == kCannotRun || code == kNotFound) return false;
  if (restarts_ < options_.max_restarts) return true;
  if (options_.max_restarts > 0) {
    report("the job ends: it was started again " + std::to_string(restarts_) +
           " times, which is all that --max-restarts allows");
  }
  return false;
}

// Takes the slots whose ranks were not lost. If too few are left, those that were lost first get
// another try.
void Job::choose_ranks() {
  std::vector<uint32_t> slots;
  for (uint32_t slot = 0; slot < options_.most_ranks; ++slot) {
    if (std::ranges::find(lost_, slot) == lost_.end()) slots.push_back(slot);
  }
  while (slots.size() < options_.least_ranks) {
    slots.push_back(lost_.front());
    lost_.erase(lost_.begin());
  }
  std::ranges::sort(slots);
  if (restarts_ > 0) {
    report("restart " + std::to_string(restarts_) + " of " + std::to_string(options_.max_restarts) +
           ": starts " + ranks_text(slots.size()) +
           (slots.size() == ranks_.size() ? " again"
                                          : ", where there were " + std::to_string(ranks_.size())));
  }
  ranks_.clear();
  for (const uint32_t slot : slots) ranks_.emplace_back().slot = slot;
}

std::string Job::log_file(uint32_t rank) const {
  const uint32_t count = start_.restart_count;
  const std::string restart = count == 0 ? "" : ".restart_" + std::to_string(count);
  return options_.log_dir + "/rank_" + number_of(rank) + restart + ".log";
}

// Returns the number that a rank of this launcher has in the job.
std::string Job::number_of(uint32_t rank) const { return std::to_string(start_.first_rank + rank); }

// ---- Starting ----------------------------------------------------------------------------------

void Job::start(uint32_t rank) {
  int out[2] = {-1, -1}, error[2] = {-1, -1};
  if (options_.log_dir.empty()) {
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) fail_errno("pipe");
  } else {
    const std::string file = log_file(rank);
    out[1] = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (out[1] < 0) fail_errno(("the log file " + file).c_str());
  }
  const Socket out_end(out[1]), error_end(error[1]);
  const pid_t process = fork();
  if (process < 0) fail_errno("fork");
  if (process == 0) become_rank(rank, out[1], error[1] < 0 ? out[1] : error[1]);
  setpgid(process, process);  // The rank does so too; whoever comes first.
  ranks_[rank].process = process;
  if (out[0] < 0) return;
  ranks_[rank].streams.push_back({Socket(out[0]), "", false});
  ranks_[rank].streams.push_back({Socket(error[0]), "", true});
}

void Job::become_rank(uint32_t rank, int out, int error) const {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // Ranks do not outlive a launcher that was killed.
  const sigset_t set = handled_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int none = open("/dev/null", O_RDONLY);
  dup2(none, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  set_variables(rank);
  std::vector<char*> words;
  for (const std::string& word : options_.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int why = errno;
  std::fprintf(stderr, "bp-launch: cannot run %s: %s\n", words[0], std::strerror(why));
  std::fflush(stderr);
  _exit(why == ENOENT ? kNotFound : kCannotRun);
}

void Job::set_variables(uint32_t rank) const {
  const auto set = [](const char* name, uint64_t value) {
    setenv(name, std::to_string(value).c_str(), 1);
  };
  set("RANK", start_.first_rank + rank);
  set("LOCAL_RANK", rank);
  set("WORLD_SIZE", start_.world_size);
  set("LOCAL_WORLD_SIZE", ranks_.size());
  set("GROUP_RANK", start_.launcher);
  set("GROUP_WORLD_SIZE", start_.launcher_count);
  set("MASTER_PORT", start_.master_port);
  setenv("MASTER_ADDR", start_.master_host.c_str(), 1);
  set("BACKPLANE_SLOT", ranks_[rank].slot);
  set("BACKPLANE_RESTART_COUNT", start_.restart_count);
  set("BACKPLANE_MAX_RESTARTS", options_.max_restarts);
  // Else every rank would have a thread for each processor.
  const size_t threads = std::max<size_t>(1, std::thread::hardware_concurrency() / ranks_.size());
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
}

// ---- Running -----------------------------------------------------------------------------------

bool Job::has_open_streams() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) {
    return std::ranges::any_of(rank.streams, [](const Stream& s) { return bool(s.pipe); });
  });
}

uint32_t Job::running_count() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(ranks_, [](const Rank& rank) { return !rank.has_ended; }));
}

void Job::poll_once() {
  // poll() leaves out an entry without a descriptor.
  const int others = others_ == nullptr ? -1 : others_->descriptor();
  std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}, {others, POLLIN, 0}};
  std::vector<std::pair<uint32_t, Stream*>> streams;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    for (Stream& stream : ranks_[rank].streams) {
      if (!stream.pipe) continue;
      entries.push_back({stream.pipe.get(), POLLIN, 0});
      streams.emplace_back(rank, &stream);
    }
  }
  int timeout = -1;
  for (const auto& time : {kill_time_, drain_time_, verdict_time_}) {
    if (!time) continue;
    const int left = milliseconds_until(*time);
    timeout = timeout < 0 ? left : std::min(timeout, left);
  }
  if (poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) fail_errno("poll");
  for (size_t i = 0; i < streams.size(); ++i) {
    if (entries[i + 2].revents != 0) read_stream(streams[i].first, *streams[i].second);
  }
  if (entries[0].revents != 0) read_signals();
  if (entries[1].revents != 0) follow_others();
}

// Ends the ranks if the launchers do not want them to run any more.
void Job::follow_others() {
  const Order order = others_->order();
  const bool runs_on = order.verb == Verb::kRun && order.round == round_;
  if (runs_on || is_stopping_ || running_count() == 0) return;
  is_stopping_ = true;
  report("all ranks end: " + order.text);
  if (!kill_time_) end_all(SIGTERM);
}

void Job::read_stream(uint32_t rank, Stream& stream) const {
  char bytes[4096];
  const ssize_t got = read(stream.pipe.get(), bytes, sizeof(bytes));
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    write_lines(rank, stream, true);
    stream.pipe = Socket();
    return;
  }
  stream.line.append(bytes, static_cast<size_t>(got));
  write_lines(rank, stream, false);
}

// Writes whole lines, so that lines of different ranks do not mix.
void Job::write_lines(uint32_t rank, Stream& stream, bool is_end) const {
  const std::string prefix = "[" + number_of(rank) + "] ";
  std::string text;
  size_t begin = 0;
  for (size_t end; (end = stream.line.find('\n', begin)) != std::string::npos; begin = end + 1) {
    text += prefix + stream.line.substr(begin, end + 1 - begin);
  }
  stream.line.erase(0, begin);
  if (!stream.line.empty() && (is_end || stream.line.size() >= kLongestLine)) {
    text += prefix + stream.line + "\n";
    stream.line.clear();
  }
  if (!text.empty()) write_all(stream.is_error ? stderr : stdout, text);
}

// ---- Ending ------------------------------------------------------------------------------------

void Job::read_signals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      look_for_ends();
    } else if (kill_time_) {
      kill_time_ = std::chrono::steady_clock::now();  // A second signal ends the grace period.
    } else {
      was_told_to_end_ = true;
      if (others_ != nullptr) {
        others_->leave(128 + number, std::string("was told to end by ") + strsignal(number));
      }
      if (others_ == nullptr || running_count() != 0) end_all(number);
    }
  }
}

void Job::look_for_ends() {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].has_ended || ranks_[rank].process == 0) continue;
    siginfo_t info{};
    const auto process = static_cast<id_t>(ranks_[rank].process);
    if (waitid(P_PID, process, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
      continue;
    }
    handle_end({rank, info.si_status, info.si_code != CLD_EXITED});
  }
}

void Job::handle_end(const End& end) {
  ranks_[end.rank].has_ended = true;
  if (end.code == 0 || is_stopping_) return;
  if (was_killed(end)) lost_.push_back(ranks_[end.rank].slot);
  if (failure_) return;
  failures_.push_back(end);
  if (!verdict_time_) verdict_time_ = deadline_after(kVerdictTime);
  if (end.by_signal) verdict_time_ = std::chrono::steady_clock::now();
}

// Returns whether somebody else than the launcher killed the rank.
bool Job::was_killed(const End& end) const {
  return end.by_signal && end.code == SIGKILL && !has_killed_;
}

// Decides which rank failed first: one that a signal ended, or else the first that was seen.
void Job::judge() {
  verdict_time_.reset();
  auto cause = std::ranges::find(failures_, true, &End::by_signal);
  if (cause == failures_.end()) cause = failures_.begin();
  if (!was_killed(*cause)) lost_.push_back(ranks_[cause->rank].slot);
  failure_ = cause->by_signal ? 128 + cause->code : cause->code;
  std::string text = "rank " + number_of(cause->rank);
  if (cause->by_signal) {
    text +=
        " was ended by signal " + std::to_string(cause->code) + " (" + strsignal(cause->code) + ")";
  } else {
    text += " ended with exit code " + std::to_string(cause->code);
  }
  if (!options_.log_dir.empty()) text += "; see " + log_file(cause->rank);
  report(text);
  if (others_ != nullptr) others_->report_failure(round_, *failure_, cause->by_signal, text);
  if (running_count() != 0 && !kill_time_) end_all(SIGTERM);
}

void Job::end_all(int number) {
  report("the ranks that run get " + std::string(number == SIGINT ? "SIGINT" : "SIGTERM"));
  kill_time_ = deadline_after(std::chrono::duration_cast<Duration>(options_.grace));
  signal_all(number);
}

void Job::signal_all(int number) const {
  for (const Rank& rank : ranks_) {
    if (rank.process > 0) kill(-rank.process, number);
  }
}

}  // namespace bp::distributed
