// Runs the checks, faults and times of all tables of a backend. The supervisor loads no backend: it
// starts the processes of the ranks, and ends those that do not end in time.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/dist/crew.hpp"
#include "conformance/dist/report.hpp"
#include "conformance/dist/task.hpp"

namespace bp::conformance::dist {

struct Options {
  WorkerSetup setup;
  std::string table;          // "": all tables of the device.
  NamedValues group_options;  // Of all groups.
  std::string launcher;       // The command that starts the ranks; "": they are started one by one.
  std::vector<uint32_t> ranks = {1, 2, 4};
  Tier tier = Tier::kQuick;
  double timeout_seconds = 10;       // Of a call.
  double fault_timeout_seconds = 2;  // Of a call in a fault.
  double grace_seconds = 5;
  double load_seconds = 120;  // Until the backend is loaded on all ranks.
  uint64_t seed = 0x5eed;
  bool has_values = true, has_faults = true, has_bandwidth = false;
  std::vector<std::string> faults;  // The names of the faults to try; empty: all.
  Sizes sizes;
  int interrupt_fd = -1;
};

// Thrown if the plugin, its transport or the launcher does not load, or if the plugin has no such
// device or table.
struct NotLoaded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a run shows while it goes on.
struct Observer {
  std::function<void(const std::string& what, size_t done, size_t total, size_t failed)> progress;
  std::function<void(const std::string& text)> print;
};

// What the process of one rank tells of the backend.
struct Look {
  std::vector<std::string> devices, tables;
};

// Loads the backend in one process, and returns what it has. Throws NotLoaded and Interrupted.
Look look_at(const Options& options);

// Runs everything. Throws Interrupted; `report` then has what was found before.
void run_all(const Options& options, const Look& look, const Observer& observer, Report& report);

}  // namespace bp::conformance::dist
