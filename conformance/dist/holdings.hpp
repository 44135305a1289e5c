// What the process of a rank holds, and a group may leave behind.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "conformance/process/hygiene.hpp"

namespace bp::conformance::dist {

class Holdings {
 public:
  // Returns the current holdings. It waits a moment for those of earlier work to settle.
  static Holdings settled();

  // Returns a line for each kind of which the process holds more than `before`, such as "2
  // descriptors: socket:[77], /dev/zero". More threads than `spare_threads` count: the pools of a
  // backend may grow with the work.
  std::vector<std::string> more_than(const Holdings& before, int64_t spare_threads) const;

  // Waits some seconds until the process holds no more than now, and returns what it holds then.
  Holdings awaited(int64_t spare_threads) const;

 private:
  static Holdings now();

  std::map<int, Descriptor> descriptors_;
  int64_t threads_ = 0;
};

// Returns what grew from each of these to the next one. Once is no leak: a backend may open
// something with its first use.
std::vector<std::string> steady_growth(const std::vector<Holdings>& rounds);

// Returns the names of the files in /dev/shm that this process has mapped or open.
std::set<std::string> shared_memory_in_use();
// Returns the names of all files in /dev/shm.
std::set<std::string> shared_memory_files();

}  // namespace bp::conformance::dist
