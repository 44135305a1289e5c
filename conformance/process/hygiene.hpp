// The state of a process that a backend must not change: compared around each case.
#pragma once

#include <signal.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace bp::conformance {

class ProcessState {
 public:
  // The state as it is now.
  static ProcessState take();

  // The same, but of descriptors those alone that `start` has too: what a backend opened since it
  // was loaded is its own to close, at any time, and its driver's threads do.
  static ProcessState take(const ProcessState& start);

  // Says in words what has changed since, a line each, and puts it back. Descriptors that were
  // opened are only told: a driver keeps its device files open, and closing them would break it.
  std::vector<std::string> compare_and_restore() const;

 private:
  bool holds(const std::pair<const int, std::string>& descriptor) const;

  int rounding_mode_ = 0;
  uint64_t float_control_ = 0;
  std::string locale_;
  std::string directory_;
  std::array<struct sigaction, 32> handlers_ = {};
  std::map<int, std::string> descriptors_;
};

// Descriptors of this process and what they refer to.
std::map<int, std::string> open_descriptors();

}  // namespace bp::conformance
