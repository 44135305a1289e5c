// Describes in words how a child process has ended.
#pragma once

#include <chrono>
#include <string>

namespace bp::conformance {

using Clock = std::chrono::steady_clock;  // The clock for time limits on processes.

// The end of a process.
struct ProcessEnd {
  int wait_status = 0;           // The status of the worker; that of the warden if the warden died
                                 // first.
  bool is_abandoned = false;     // The process survived even SIGKILL.
  bool has_lost_warden = false;  // The warden died first, and the worker died with it.
  std::string left_behind;       // For example "2 processes (sleep, python3)"; "" if the worker
                                 // left none.

  bool is_clean() const { return !is_abandoned && !has_lost_warden && wait_status == 0; }
  // Returns "died of signal 11 (SIGSEGV)", "the process exited with code 3".
  std::string text() const;
};

}  // namespace bp::conformance
