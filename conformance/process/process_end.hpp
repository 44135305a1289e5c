// How a process that this one started has ended, in words.
#pragma once

#include <chrono>
#include <string>

namespace bp::conformance {

using Clock = std::chrono::steady_clock;  // For how long a process is waited for.

// How a process ended.
struct ProcessEnd {
  int wait_status = 0;           // Of the worker; where its warden died before, of the warden.
  bool is_abandoned = false;     // It did not even die of SIGKILL.
  bool has_lost_warden = false;  // Its warden died before it, and it with its warden.
  std::string left_behind;       // "2 processes (sleep, python3)"; "" if there were none.

  bool is_clean() const { return !is_abandoned && !has_lost_warden && wait_status == 0; }
  // "died of signal 11 (SIGSEGV)", "the process exited with code 3".
  std::string text() const;
};

}  // namespace bp::conformance
