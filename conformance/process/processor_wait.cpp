#include "conformance/process/processor_wait.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace bp::conformance {

// schedstat has the nanoseconds on a processor, and those of waiting for one.
double seconds_without_processor(pid_t process) {
  uint64_t longest_ns = 0;
  std::error_code error;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  std::filesystem::directory_iterator task(tasks, error);
  for (const std::filesystem::directory_iterator end; !error && task != end;
       task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");
    uint64_t running_ns = 0, waiting_ns = 0;
    if (file >> running_ns >> waiting_ns) longest_ns = std::max(longest_ns, waiting_ns);
  }
  return 1e-9 * static_cast<double>(longest_ns);
}

}  // namespace bp::conformance
