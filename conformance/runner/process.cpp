#include "conformance/runner/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "conformance/json_file.hpp"
#include "conformance/runner/warden.hpp"
#include "registry/boundary/plugin_text.hpp"

extern char** environ;

namespace bp::conformance {
namespace {

constexpr size_t kOutputCap = 64u << 10;
constexpr std::chrono::seconds kGrace{2};  // The time between SIGTERM and SIGKILL, and after
                                           // SIGKILL.

[[noreturn]] void throw_errno(int code, const char* what) {
  throw std::system_error(code, std::generic_category(), what);
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno(errno, "pipe2");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_if_open(read_end);
    close_if_open(write_end);
  }
  Pipe(const Pipe&) = delete;

  static void close_if_open(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  static int take(int& fd) { return std::exchange(fd, -1); }
};

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// Attributes that start the child in its own process group, without blocked or ignored signals.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  void open_null(int fd) {
    posix_spawn_file_actions_addopen(&actions_, fd, "/dev/null", O_RDONLY, 0);
  }
  void connect(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// The children of this process that are not orphans of a worker: the wardens, and the children that
// existed before the first warden.
class KnownChildren {
 public:
  static KnownChildren& of_this_process() {
    static KnownChildren children;
    return children;
  }

  // Starts a warden. A lock keeps the warden from looking like an orphan before its process id is
  // known.
  template <typename Start>
  pid_t start(const Start& start_warden) {
    const std::lock_guard lock(mutex_);
    const pid_t warden = start_warden();
    known_.insert(warden);
    return warden;
  }

  void reap(pid_t warden, int& out_status) {
    const std::lock_guard lock(mutex_);
    while (waitpid(warden, &out_status, 0) < 0 && errno == EINTR) continue;
    known_.erase(warden);
  }

  // Kills the orphans of a worker whose warden is dead; the worker is one of them. Returns false if
  // one does not die.
  bool kill_orphans(Clock::time_point deadline) {
    const std::lock_guard lock(mutex_);
    for (;;) {
      std::vector<pid_t> orphans = children_of(getpid());
      std::erase_if(orphans, [&](pid_t child) { return known_.contains(child); });
      if (orphans.empty()) return true;
      for (const pid_t orphan : orphans) {
        kill(orphan, SIGKILL);
        waitpid(orphan, nullptr, WNOHANG);
      }
      if (Clock::now() >= deadline) return false;
      usleep(1000);
    }
  }

 private:
  KnownChildren() {
    for (const pid_t child : children_of(getpid())) known_.insert(child);
    // The orphans of a dead warden become children of this process.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }

  std::mutex mutex_;
  std::set<pid_t> known_;  // Guarded by mutex_.
};

// The environment of a worker. Unless the setup says otherwise, the allocator of glibc keeps no
// freed memory for each thread, and has one arena: a backend with many threads would fill these
// caches slowly, and each further arena has a header of 2 KiB. Both look like leaks.
class WorkerEnvironment {
 public:
  explicit WorkerEnvironment(const WorkerSetup& setup) {
    constexpr std::string_view kName = "GLIBC_TUNABLES=",
                               kTunable = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";
    bool is_told = setup.keeps_thread_caches;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      strings_.emplace_back(*entry);
      if (is_told || !strings_.back().starts_with(kName)) continue;
      strings_.back().append(":").append(kTunable);
      is_told = true;
    }
    if (!is_told) strings_.push_back(std::string(kName).append(kTunable));
    for (std::string& string : strings_) pointers_.push_back(string.data());
    pointers_.push_back(nullptr);
  }
  WorkerEnvironment(const WorkerEnvironment&) = delete;
  char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

int milliseconds_until(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(std::min<int64_t>(left + 1, 1000));
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerSetup& setup, int interrupt_fd)
    : interrupt_fd_(interrupt_fd) {
  Pipe commands, records, output, reports;
  SpawnActions actions;
  actions.open_null(STDIN_FILENO);
  actions.connect(output.write_end, STDOUT_FILENO);
  actions.connect(output.write_end, STDERR_FILENO);
  actions.connect(commands.read_end, kCommandFd);
  actions.connect(records.write_end, kRecordFd);
  actions.connect(reports.write_end, kWardenFd);

  WorkerSetup told = setup;
  told.parent = getpid();
  std::string name = "bp-conformance", verb = "--worker", text = json_text(to_json(told));
  const std::array<char*, 4> arguments = {name.data(), verb.data(), text.data(), nullptr};
  const SpawnAttributes attributes;
  const WorkerEnvironment environment(setup);
  warden_ = KnownChildren::of_this_process().start([&] {
    pid_t warden = -1;
    const int error = posix_spawn(&warden, "/proc/self/exe", actions.get(), attributes.get(),
                                  arguments.data(), environment.get());
    if (error != 0) throw_errno(error, "posix_spawn of a worker");
    return warden;
  });

  // If the kernel lacks pidfd_open(), the end of the record pipe shows the end of the warden.
  warden_pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, warden_, 0));
  if (warden_pid_fd_ >= 0) fcntl(warden_pid_fd_, F_SETFD, FD_CLOEXEC);
  report_fd_ = Pipe::take(reports.read_end);
  command_fd_ = Pipe::take(commands.write_end);
  record_fd_ = Pipe::take(records.read_end);
  output_fd_ = Pipe::take(output.read_end);
  set_nonblocking(record_fd_);
  set_nonblocking(output_fd_);
  set_nonblocking(report_fd_);
}

WorkerProcess::~WorkerProcess() {
  if (!is_reaped_) finish(Clock::now());
  for (const int fd : {warden_pid_fd_, report_fd_, command_fd_, record_fd_, output_fd_}) {
    if (fd >= 0) close(fd);
  }
}

bool WorkerProcess::send(RecordType type, const nlohmann::json& payload) {
  return write_all(command_fd_, encode(type, payload));
}

bool WorkerProcess::read_records() {
  std::array<char, 1 << 16> bytes;
  for (;;) {
    const ssize_t size = ::read(record_fd_, bytes.data(), bytes.size());
    if (size > 0) {
      reader_.append(std::string_view(bytes.data(), static_cast<size_t>(size)));
    } else if (size == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
    if (static_cast<size_t>(size) < bytes.size()) return true;
  }
}

// Reads at most as much as fits into a pipe, so that a flood of output cannot make the caller miss
// its deadline.
void WorkerProcess::drain_output() {
  std::array<char, 1 << 16> bytes;
  const ssize_t size = ::read(output_fd_, bytes.data(), bytes.size());
  if (size <= 0) return;
  const auto count = static_cast<size_t>(size);
  output_bytes_ += count;
  if (output_.size() < kOutputCap) {
    output_.append(bytes.data(), std::min(count, kOutputCap - output_.size()));
  }
}

std::string WorkerProcess::take_output(uint64_t& out_bytes) {
  drain_output();
  out_bytes = std::exchange(output_bytes_, 0);
  return std::exchange(output_, {});
}

Waited WorkerProcess::wait(Clock::time_point deadline, Record& out_record) {
  bool is_gone = false;
  for (;;) {
    try {
      if (std::optional<Record> record = reader_.next()) {
        out_record = std::move(*record);
        return Waited::kRecord;
      }
    } catch (const ProtocolError& e) {
      problem_ = std::string("the worker sent ") + e.what();
      return Waited::kBroken;
    }
    if (is_gone) {
      if (!reader_.has_rest()) return Waited::kGone;
      problem_ = "the worker sent a record that is cut";
      return Waited::kBroken;
    }
    if (Clock::now() >= deadline) return Waited::kDeadline;

    std::array<pollfd, 4> sources = {pollfd{record_fd_, POLLIN, 0}, pollfd{output_fd_, POLLIN, 0},
                                     pollfd{warden_pid_fd_, POLLIN, 0},
                                     pollfd{interrupt_fd_, POLLIN, 0}};
    poll(sources.data(), sources.size(), milliseconds_until(deadline));
    if (sources[3].revents != 0) return Waited::kInterrupted;
    if (sources[1].revents != 0) drain_output();
    const bool has_ended = sources[2].revents != 0;
    if (sources[0].revents != 0 || has_ended) is_gone = !read_records() || has_ended;
  }
}

bool WorkerProcess::wait_for_end(Clock::time_point deadline) {
  for (;;) {
    siginfo_t info = {};
    // WNOWAIT keeps the warden a zombie, so that its process id stays its own until it is reaped.
    if (waitid(P_PID, static_cast<id_t>(warden_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == warden_) {
      return true;
    }
    if (Clock::now() >= deadline) return false;
    std::array<pollfd, 2> sources = {pollfd{output_fd_, POLLIN, 0},
                                     pollfd{warden_pid_fd_, POLLIN, 0}};
    // Without a pidfd, the wait can learn of the end only by polling.
    poll(sources.data(), sources.size(), warden_pid_fd_ < 0 ? 5 : milliseconds_until(deadline));
    if ((sources[0].revents & POLLIN) != 0) {
      drain_output();
    } else if (sources[0].revents != 0 && sources[1].revents == 0) {
      usleep(1000);  // The pipe has ended before the process.
    }
  }
}

pid_t WorkerProcess::pid() {
  pid_t worker = 0;
  // The worker writes its process id first, in one piece.
  if (worker_ == 0 && ::read(report_fd_, &worker, sizeof(worker)) == sizeof(worker))
    worker_ = worker;
  return worker_;
}

bool WorkerProcess::take_warden_report(ProcessEnd& end) {
  static_cast<void>(pid());
  WardenReport report;
  if (::read(report_fd_, &report, sizeof(report)) != sizeof(report)) return false;
  end.wait_status = report.wait_status;
  if (report.left_count == 0) return true;
  report.left_names[sizeof(report.left_names) - 1] = '\0';
  end.left_behind = std::to_string(report.left_count) +
                    (report.left_count == 1 ? " process (" : " processes (") +
                    clean_name(report.left_names) + ")";
  return true;
}

ProcessEnd WorkerProcess::finish(Clock::time_point deadline) {
  ProcessEnd end;
  if (is_reaped_) return end;
  if (command_fd_ >= 0) close(std::exchange(command_fd_, -1));
  bool has_ended = wait_for_end(deadline);
  if (!has_ended) {
    // The warden passes the first signal on to the worker, and kills the worker at the second.
    // SIGCONT may be needed because the backend can stop the warden.
    for (const int number : {SIGTERM, SIGUSR1}) {
      if (has_ended) break;
      kill(warden_, SIGCONT);
      kill(warden_, number);
      has_ended = wait_for_end(Clock::now() + kGrace);
    }
  }
  const bool was_silent = !has_ended;
  if (was_silent) {
    kill(warden_, SIGKILL);
    has_ended = wait_for_end(Clock::now() + kGrace);
  }
  is_reaped_ = true;
  KnownChildren& children = KnownChildren::of_this_process();
  int warden_status = 0;
  if (has_ended) children.reap(warden_, warden_status);
  if (take_warden_report(end)) return end;
  end.is_abandoned = !children.kill_orphans(Clock::now() + kGrace) || !has_ended;
  end.has_lost_warden = !was_silent;
  end.wait_status = warden_status;
  return end;
}

}  // namespace bp::conformance
