// The data that a worker receives before it loads the backend, and the data that it reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/runner/perf_options.hpp"
#include "conformance/runner/recording_source.hpp"

namespace bp::conformance {

// The version of the list of cases. A change of the meaning of a case makes a new suite.
constexpr const char* kSuiteVersion = "0.1";

// The descriptors of the two protocol pipes in a worker. Their numbers are high, so that a backend
// that closes or reuses the first few descriptors does not touch them.
constexpr int kCommandFd = 230;
constexpr int kRecordFd = 231;

// The longest time limit that a stored run can have: it fits every clock.
constexpr double kMostSeconds = 1e8;

using NamedValues = std::vector<std::pair<std::string, std::string>>;

struct WorkerSetup {
  std::string plugin;   // A path, or the name of a manifest.
  std::string device;   // The index or the name of a device; "" is the first device of the plugin.
  NamedValues options;  // Of the backend.
  std::string layers, layer_options;  // The layers of the registry; "" leaves them to the
                                      // environment.
  std::string transport;  // The plugin whose process groups staged groups are made over, or "".
  CaseOptions case_options;
  PerfOptions perf;           // Options of cases that are timed.
  RecordingSource recording;  // The recording, if cases come from one.
  // The allocator keeps freed memory for each thread, as it does in other programs. It is not
  // stored.
  bool keeps_thread_caches = false;
  int parent = 0;                      // The supervisor's process id.
  bool allows_decompositions = false;  // The host may serve calls that no kernel takes.
  bool tells_device_memory = false;    // Each result says how much memory of the device is in use.
};

// The counts of calls that went through a registry: bp_dispatch_statistics.
struct DispatchCounts {
  uint64_t native = 0, decomposed = 0, host = 0, copied_scalars = 0;
  uint64_t compiled = 0;   // The part of `native` that ran as programs of one op.
  uint64_t realigned = 0;  // The part of `decomposed` that ran on copies at other offsets.
  uint64_t laid_out = 0;   // The part of `native` whose tensors were converted to layouts.

  void add(const DispatchCounts& other) {
    native += other.native;
    decomposed += other.decomposed;
    host += other.host;
    copied_scalars += other.copied_scalars;
    compiled += other.compiled;
    realigned += other.realigned;
    laid_out += other.laid_out;
  }
};

nlohmann::json to_json(const DispatchCounts& counts);
// Reads the counts. Throws UsageError if they are wrong.
DispatchCounts dispatch_counts_from_json(const nlohmann::json& json, const std::string& name);

class JsonObject;

// A list of pairs of texts.
nlohmann::json json_of_named_values(const NamedValues& values);
NamedValues named_values_from_json(const JsonObject& told, const char* member);

nlohmann::json to_json(const WorkerSetup& setup);
// Reads a setup. Throws UsageError, which names what is missing or wrong in `name` and what is
// allowed.
WorkerSetup worker_setup_from_json(const nlohmann::json& json, const std::string& name);

nlohmann::json to_json(const Result& result);
// Reads a result. Throws UsageError as worker_setup_from_json() does.
Result result_from_json(const nlohmann::json& json, const std::string& name);

}  // namespace bp::conformance
