// The state of a process that a backend must not change. The suite compares it around each case.
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
  // Returns the current state.
  static ProcessState take();

  // Returns the current state with only those descriptors that `start` has too. The backend may
  // close at any time a descriptor that it opened after loading, and its driver's threads do so.
  static ProcessState take(const ProcessState& start);

  // Returns a line for each change since then, and restores the state. It only reports new
  // descriptors and leaves them open, because a driver keeps its device files open and needs them.
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

// Returns the descriptors of this process and what they refer to.
std::map<int, std::string> open_descriptors();

}  // namespace bp::conformance
