// The warden: a small process between the supervisor and a worker. It loads no backend.
//
// A backend that kills its parent process kills the warden, and the supervisor still makes its
// report. A process that the backend started and left behind becomes a child of the warden, even if
// it has a session of its own. When the worker has ended, the warden kills such processes, and
// tells the supervisor how many there were.
//
// A backend can also find the supervisor and kill it. A process of the same user cannot prevent
// that; the lines of results.jsonl stay, and --resume continues the run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace bp::conformance {

// The descriptor on which a warden reports. The worker closes it before it loads the backend.
constexpr int kWardenFd = 235;

// The end of the worker. In the pipe, the worker's process id, a pid_t, stands before this struct.
struct WardenReport {
  int32_t wait_status = 0;
  uint32_t left_count = 0;    // The number of processes that the worker left behind.
  char left_names[256] = "";  // Their names, each once: "sleep, python3".
};

// Makes this process the warden of a worker. The function returns only in the worker, which is a
// fork of this process. The warden ends with the worker. `supervisor` is the process that must be
// the parent; if it is not, the process exits.
void divide_into_warden_and_worker(pid_t supervisor);

// Returns the processes whose parent is `parent`, zombies included.
std::vector<pid_t> children_of(pid_t parent);

}  // namespace bp::conformance
