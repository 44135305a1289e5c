// What a worker is told before it loads the backend, and what it tells about itself and the
// backend.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/runner/perf_options.hpp"
#include "conformance/runner/recording_source.hpp"

namespace bp::conformance {

// Of the list of cases: a change of the meaning of a case is a new suite.
constexpr const char* kSuiteVersion = "0.1";

// The descriptors of the two protocol pipes in a worker: high, so that a backend that closes or
// reuses the first few does not meet them.
constexpr int kCommandFd = 230;
constexpr int kRecordFd = 231;

// The longest time limit that a stored run can have: it fits every clock.
constexpr double kMostSeconds = 1e8;

struct WorkerSetup {
  std::string plugin;  // A path, or the name of a manifest.
  std::string device;  // "" is the first device of the plugin; else its index or its name.
  std::vector<std::pair<std::string, std::string>> options;  // The backend's.
  std::string layers, layer_options;  // Of the registry; "" leaves them to the environment.
  CaseOptions case_options;
  PerfOptions perf;           // Of cases that are timed.
  RecordingSource recording;  // Of cases that a recording gives.
  int parent = 0;             // The supervisor's process id.
};

// What a registry counted of the calls that went through it: bp_dispatch_statistics.
struct DispatchCounts {
  uint64_t native = 0, decomposed = 0, host = 0, copied_scalars = 0;

  void add(const DispatchCounts& other) {
    native += other.native;
    decomposed += other.decomposed;
    host += other.host;
    copied_scalars += other.copied_scalars;
  }
};

nlohmann::json to_json(const DispatchCounts& counts);
// Throws UsageError.
DispatchCounts dispatch_counts_from_json(const nlohmann::json& json, const std::string& name);

nlohmann::json to_json(const WorkerSetup& setup);
// Throws UsageError, which names what is missing or wrong in `name`, and what is allowed.
WorkerSetup worker_setup_from_json(const nlohmann::json& json, const std::string& name);

nlohmann::json to_json(const Result& result);
// Throws UsageError likewise.
Result result_from_json(const nlohmann::json& json, const std::string& name);

}  // namespace bp::conformance
