// One worker and the batch of cases that it runs.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "conformance/cases/case_list.hpp"
#include "conformance/runner/process.hpp"
#include "conformance/runner/setup.hpp"

namespace bp::conformance {

// One run of one case.
struct Attempt {
  size_t index = 0;  // The index of the case in the list of cases.
  int number = 1;
  Result result;
  double wall_ms = 0;
  std::string output;  // The output of the backend during the attempt, up to 64 KiB.
  uint64_t output_bytes = 0;
  std::optional<uint64_t> device_bytes;  // Memory of the device in use, if the worker tells it.
  int pid = 0;
  bool is_after_end = false;  // The worker died between this case and the next.
};

struct SessionOptions {
  WorkerSetup setup;
  uint64_t seed = 0x5eed;
  double timeout_seconds = 30;
  int interrupt_fd = -1;
};

// The result of a batch. Each of its cases has an attempt, unless the worker died or the batch was
// interrupted or stopped.
struct BatchReport {
  nlohmann::json hello;                // Null if the worker never sent HELLO.
  std::optional<Result> load_failure;  // Set if the backend did not load; then no case ran.
  std::optional<Result> unload_failure;
  // What the layer `fault` says of its rules that no call of this worker fitted.
  std::vector<std::string> idle_rules;
  DispatchCounts dispatch;    // The counts up to the end of the last case that ended.
  size_t finished_count = 0;  // The number of cases at the beginning of the batch that have an
                              // attempt.
  bool has_died = false;
  bool is_abandoned = false;
  bool is_interrupted = false;
};

// The session calls it for each attempt as it ends. If it returns false, the batch stops.
using OnAttempt = std::function<bool(const Attempt&)>;

// Runs `batch` in a fresh worker. A case may have two attempts: a worker that dies after the end of
// a case is charged to that case.
BatchReport run_batch(const SessionOptions& options, const CaseList& cases,
                      std::span<const size_t> batch, int attempt, const OnAttempt& on_attempt);

}  // namespace bp::conformance
