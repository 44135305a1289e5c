#include "conformance/runner/warden.hpp"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string>

#include "conformance/runner/protocol.hpp"

namespace bp::conformance {
namespace {

using WardenClock = std::chrono::steady_clock;

// A helper process of the backend may need a moment to notice that the worker is gone.
constexpr std::chrono::milliseconds kTimeToLeave{500};
constexpr std::chrono::seconds kTimeToKill{5};

std::string read_all_of(const std::string& path) {
  std::string text;
  FILE* file = fopen(path.c_str(), "re");
  if (file == nullptr) return text;
  char bytes[512];
  while (const size_t size = fread(bytes, 1, sizeof(bytes), file)) text.append(bytes, size);
  fclose(file);
  return text;
}

// Returns the parent of a process, or -1 if there is no such process. The file reads "pid (name)
// state parent ...", where the name may hold any characters.
pid_t parent_of(const std::string& pid) {
  const std::string text = read_all_of("/proc/" + pid + "/stat");
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 4 > text.size()) return -1;
  return static_cast<pid_t>(strtol(text.c_str() + end_of_name + 3, nullptr, 10));
}

std::string name_of_process(pid_t pid) {
  std::string name = read_all_of("/proc/" + std::to_string(pid) + "/comm");
  name.erase(std::min(name.find('\n'), name.size()));
  return name;
}

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGUSR1}) sigaddset(&set, number);
  return set;
}

bool has_children() {
  siginfo_t info = {};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

void wait_for_a_signal(std::chrono::milliseconds patience) {
  const sigset_t set = watched_signals();
  const timespec time = {.tv_sec = patience.count() / 1000,
                         .tv_nsec = patience.count() % 1000 * 1'000'000};
  sigtimedwait(&set, nullptr, &time);
}

class Warden {
 public:
  explicit Warden(pid_t worker) : worker_(worker) {}

  [[noreturn]] void watch() {
    while (!reap()) {
      const sigset_t set = watched_signals();
      siginfo_t info = {};
      const int number = sigwaitinfo(&set, &info);
      // The worker is not reaped yet, so no other process can have its process id.
      if (number == SIGTERM) kill(-worker_, SIGTERM);
      if (number == SIGUSR1) kill(-worker_, SIGKILL);
      was_told_to_end_ |= number == SIGTERM || number == SIGUSR1;
    }
    clear_up();
    static_cast<void>(write_all(
        kWardenFd, std::string_view(reinterpret_cast<const char*>(&report_), sizeof(report_))));
    _exit(0);
  }

 private:
  // Reaps all children that have ended. Returns true if the worker is among them.
  bool reap() {
    bool has_ended = false;
    int status = 0;
    for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended != worker_) continue;
      report_.wait_status = status;
      has_ended = true;
    }
    return has_ended;
  }

  // Kills what the worker left behind. The children of a killed process become children of the
  // warden, so passes follow each other until none is left.
  void clear_up() {
    const bool is_orderly = report_.wait_status == 0 && !was_told_to_end_;
    const auto start = WardenClock::now();
    while (is_orderly && has_children() && WardenClock::now() - start < kTimeToLeave) {
      wait_for_a_signal(std::chrono::milliseconds(20));
      reap();
    }
    std::set<pid_t> left;
    std::set<std::string> names;
    const auto limit = WardenClock::now() + kTimeToKill;
    while (has_children() && WardenClock::now() < limit) {
      for (const pid_t child : children_of(getpid())) {
        if (left.insert(child).second) names.insert(name_of_process(child));
        kill(child, SIGKILL);
      }
      wait_for_a_signal(std::chrono::milliseconds(5));
      reap();
    }
    report_.left_count = static_cast<uint32_t>(left.size());
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    snprintf(report_.left_names, sizeof(report_.left_names), "%s", text.c_str());
  }

  pid_t worker_;
  bool was_told_to_end_ = false;
  WardenReport report_;
};

// Closes every descriptor but the pipe of the report: the pipes of the worker must close when the
// worker ends.
void close_other_descriptors() {
  constexpr unsigned kEnd = ~0u;
  if (syscall(SYS_close_range, 0u, static_cast<unsigned>(kWardenFd) - 1, 0u) == 0 &&
      syscall(SYS_close_range, static_cast<unsigned>(kWardenFd) + 1, kEnd, 0u) == 0) {
    return;
  }
  const int count = static_cast<int>(std::min(sysconf(_SC_OPEN_MAX), 65536L));
  for (int fd = 0; fd < count; ++fd) {
    if (fd != kWardenFd) close(fd);
  }
}

}  // namespace

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return children;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (parent_of(name) == parent) children.push_back(static_cast<pid_t>(std::stol(name)));
  }
  closedir(folder);
  return children;
}

void divide_into_warden_and_worker(pid_t supervisor) {
  // No process here may outlive the supervisor, because an orphan could keep a device.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) _exit(1);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t watched = watched_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &watched, &before);
  prctl(PR_SET_NAME, "bp-warden");
  const pid_t warden = getpid();
  const pid_t worker = fork();
  if (worker < 0) _exit(1);
  if (worker > 0) {
    setpgid(worker, worker);
    close_other_descriptors();
    Warden(worker).watch();
  }
  prctl(PR_SET_NAME, "bp-worker");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != warden) _exit(1);
  setpgid(0, 0);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  const pid_t self = getpid();
  static_cast<void>(
      write_all(kWardenFd, std::string_view(reinterpret_cast<const char*>(&self), sizeof(self))));
  close(kWardenFd);
}

}  // namespace bp::conformance
