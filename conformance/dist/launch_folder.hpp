// A folder through which ranks get their tasks and speak, where a launcher such as mpirun starts
// them: it passes no descriptors on, and each process gets the same arguments. So each process
// takes the first rank that no other process has taken.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "conformance/dist/setting.hpp"
#include "conformance/dist/task.hpp"

namespace bp::conformance::dist {

class LaunchFolder {
 public:
  // Writes the tasks. Throws std::system_error.
  explicit LaunchFolder(const std::vector<RankTask>& tasks);

  const std::string& path() const { return folder_.path(); }

  // Opens the end from which the supervisor reads what a rank says. Reading it does not block, and
  // never comes to an end. The caller closes it.
  int open_lines(size_t rank) const;

  // Returns the process that has taken a rank, or -1.
  pid_t process_of(size_t rank) const;

 private:
  StoreFolder folder_;
};

// Takes a rank in the process of a rank, opens kRankFd, and returns the text of its task. Throws
// std::runtime_error if all ranks have been taken.
std::string take_rank(const std::string& folder);

}  // namespace bp::conformance::dist
