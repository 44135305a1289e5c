// A process for one routine of a case: this program once more, in which no backend is loaded yet.
// For what would spoil the worker, or cannot be seen where other cases ran before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/host.h"

namespace bp::conformance {

// What a routine works on.
struct ChildTask {
  std::string routine;
  std::string plugin;  // A path.
  std::vector<std::pair<std::string, std::string>> options;
  uint64_t device = 0;  // Its index among the devices of the plugin.
  uint64_t seed = 0;
  std::string argument;  // What else the routine is told, in its own words.
  int descriptor = -1;   // An open one that goes along; in the child the number it has there.
  int channel = -1;      // A socket that goes along, to talk with the case.

  std::vector<bp_option> option_list() const;  // Borrows from this object.
};

// How it ended.
struct ChildReport {
  enum class Kind { kOk, kNotSupported, kFailed };
  Kind kind = Kind::kOk;
  std::string message, cause, tag;
};

// Ends a routine that is not through; run_child() makes the report of it.
struct ChildEnd {
  ChildReport report;
};
[[noreturn]] void child_fails(std::string message, std::string tag = "", std::string cause = "");
[[noreturn]] void child_not_supported(std::string reason);

struct ChildRoutine {
  std::string_view name;
  void (*run)(const ChildTask& task);  // May throw ChildEnd.
};

// Runs the routine of `task` in a child and waits for it, at most `timeout_s` seconds.
ChildReport call_child(const ChildTask& task, int timeout_s);

// The child's side: what the program does for `--child TASK`. The exit code.
int run_child(const std::string& task_json, const std::vector<ChildRoutine>& routines);

}  // namespace bp::conformance
