// A process for one routine of a case: this program once more, with no backend loaded yet. It is
// for routines that would spoil the worker, or that need a process in which no case ran before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/host.h"

namespace bp::conformance {

// The arguments of a routine.
struct ChildTask {
  std::string routine;
  std::string plugin;  // The path of the plugin.
  std::vector<std::pair<std::string, std::string>> options;
  uint64_t device = 0;  // The index among the devices of the plugin.
  uint64_t seed = 0;
  std::string argument;  // Further arguments, in the routine's own words.
  int descriptor = -1;   // An open descriptor that the child inherits; in the child it is the
                         // number there.
  int channel = -1;      // A socket that the child inherits, to talk with the case.

  std::vector<bp_option> option_list() const;  // Returns options that borrow from this object.
};

// How a routine ended.
struct ChildReport {
  enum class Kind { kOk, kNotSupported, kFailed };
  Kind kind = Kind::kOk;
  std::string message, cause, tag;
};

// Thrown by a routine to end early; run_child() makes the report from it.
struct ChildEnd {
  ChildReport report;
};
[[noreturn]] void child_fails(std::string message, std::string tag = "", std::string cause = "");
[[noreturn]] void child_not_supported(std::string reason);

struct ChildRoutine {
  std::string_view name;
  void (*run)(const ChildTask& task);  // The routine may throw ChildEnd.
};

// Runs the routine of `task` in a child and waits for it, at most `timeout_s` seconds.
ChildReport call_child(const ChildTask& task, int timeout_s);

// Runs the child's side of `--child TASK`. Returns the exit code.
int run_child(const std::string& task_json, const std::vector<ChildRoutine>& routines);

}  // namespace bp::conformance
