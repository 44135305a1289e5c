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

// What a descriptor refers to. A file stays the same when somebody renames it, such as a log that
// the worker has inherited. Descriptors without a file, such as those of epoll, share one inode,
// and differ by their kind.
struct Descriptor {
  std::string target;  // As the system names it.
  uint64_t device = 0, inode = 0;

  friend bool operator==(const Descriptor& a, const Descriptor& b) {
    const bool has_file = !a.target.starts_with("anon_inode:");
    return a.device == b.device && a.inode == b.inode && (has_file || a.target == b.target);
  }
};

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
  bool holds(const std::pair<const int, Descriptor>& descriptor) const;

  int rounding_mode_ = 0;
  uint64_t float_control_ = 0;
  std::string locale_;
  std::string directory_;
  std::array<struct sigaction, 32> handlers_ = {};
  std::map<int, Descriptor> descriptors_;
};

// Returns the descriptors of this process and what they refer to.
std::map<int, Descriptor> open_descriptors();

}  // namespace bp::conformance
