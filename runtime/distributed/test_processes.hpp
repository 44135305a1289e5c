// Processes, files and ports for the tests of stores and of the launcher.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/distributed/socket.hpp"

namespace bp::distributed {

// A folder that lives until the end of a test.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bp_test_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// Runs `body` in processes of their own, and returns their exit codes. A process that throws prints
// what, and has the code 1.
inline std::vector<int> run_processes(uint32_t count, const std::function<int(uint32_t)>& body) {
  std::vector<pid_t> processes;
  for (uint32_t i = 0; i < count; ++i) {
    std::fflush(nullptr);  // Else the child might write what waits in the buffers again.
    const pid_t process = fork();
    if (process == 0) {
      int code = 1;
      try {
        code = body(i);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "process %u: %s\n", i, error.what());
      }
      _exit(code);
    }
    processes.push_back(process);
  }
  std::vector<int> codes;
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return codes;
}

}  // namespace bp::distributed
