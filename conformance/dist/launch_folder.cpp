#include "conformance/dist/launch_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "conformance/json_file.hpp"
#include "conformance/report/files.hpp"
#include "registry/files/read_file.hpp"

namespace bp::conformance::dist {
namespace {

constexpr uint64_t kMostBytes = 1 << 20;  // Of a task.

std::string path_of(const std::string& folder, const char* what, size_t rank) {
  return folder + "/" + what + "." + std::to_string(rank);
}

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

LaunchFolder::LaunchFolder(const std::vector<RankTask>& tasks) {
  for (size_t rank = 0; rank < tasks.size(); ++rank) {
    const std::string lines = path_of(path(), "lines", rank), task = path_of(path(), "task", rank);
    if (mkfifo(lines.c_str(), 0600) != 0) fail("no pipe " + lines);
    write_file(task, json_text(to_json(tasks[rank])));
  }
}

// A pipe with a writer has no end, so the descriptor is also one of a writer.
int LaunchFolder::open_lines(size_t rank) const {
  const std::string lines = path_of(path(), "lines", rank);
  const int descriptor = open(lines.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) fail("no pipe " + lines);
  return descriptor;
}

pid_t LaunchFolder::process_of(size_t rank) const {
  pid_t process = -1;
  std::ifstream(path_of(path(), "process", rank)) >> process;
  return process > 0 ? process : -1;
}

std::string take_rank(const std::string& folder) {
  for (size_t rank = 0;; ++rank) {
    const std::string task = path_of(folder, "task", rank);
    if (!std::filesystem::exists(task)) {
      throw std::runtime_error("more processes were started than there are ranks");
    }
    const std::string taken = path_of(folder, "taken", rank);
    const int claim = open(taken.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (claim < 0) continue;
    close(claim);
    const int lines = open(path_of(folder, "lines", rank).c_str(), O_WRONLY | O_CLOEXEC);
    if (lines < 0 || dup2(lines, kRankFd) < 0) fail("no pipe to the supervisor");
    close(lines);
    write_file(path_of(folder, "process", rank), std::to_string(getpid()));
    std::string text;
    if (const std::string problem = read_file(task, kMostBytes, text); !problem.empty()) {
      throw std::runtime_error(problem);
    }
    return text;
  }
}

}  // namespace bp::conformance::dist
