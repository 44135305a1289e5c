// What a worker is told before it loads the backend, and what it tells about itself and the
// backend.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/perf/perf_options.hpp"
#include "conformance/replay/source.hpp"

namespace bp::conformance {

// Of the list of cases: a change of the meaning of a case is a new suite.
constexpr const char* kSuiteVersion = "0.1";

// The detail of a result behind which the device was lost.
constexpr const char* kLostDetail = "device";

// The descriptors of the two protocol pipes in a worker: high, so that a backend that closes or
// reuses the first few does not meet them.
constexpr int kCommandFd = 230;
constexpr int kRecordFd = 231;

struct WorkerSetup {
  std::string plugin;  // A path, or the name of a manifest.
  std::string device;  // "" is the first device of the plugin; else its index or its name.
  std::vector<std::pair<std::string, std::string>> options;  // The backend's.
  std::string layers, layer_options;  // Of the registry; "" leaves them to the environment.
  CaseOptions case_options;
  PerfOptions perf;     // Of cases that are timed.
  ReplaySource replay;  // Of cases that a recording gives.
  int parent = 0;       // The supervisor's process id.
};

nlohmann::json to_json(const WorkerSetup& setup);
WorkerSetup worker_setup_from_json(const nlohmann::json& json);

nlohmann::json to_json(const Result& result);
Result result_from_json(const nlohmann::json& json);

}  // namespace bp::conformance
