// Runs a selection of cases in workers, charges deaths to the cases that caused them, and confirms
// each failure in a process of its own. Never loads a backend.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "conformance/runner/session.hpp"

namespace bp::conformance {

// The one result of a case of the selection.
struct Final {
  size_t index = 0;
  Attempt attempt;
  int attempt_count = 0;
  bool is_confirmed = false;  // It failed again, alone in a fresh worker.
};

struct RunOptions {
  SessionOptions session;
  size_t batch = 200;       // The most cases in one worker.
  bool keeps_size = false;  // Batches do not shrink after a death.
  int jobs = 1;
  int retries = 1;  // Solo runs that confirm a failure.
  int max_crashes = 100;
  bool fail_fast = false;
  int repeat = 1;
  std::vector<Final> known;  // Of cases that an earlier run has settled: they do not run again.
  // Whether a failure is expected, so that it neither stops the run nor counts as a crash.
  std::function<bool(const Case&, const Result&)> is_expected;
};

struct RunReport {
  nlohmann::json hello;
  std::optional<Result> load_failure;  // The backend never loaded.
  std::vector<Final> finals;           // In the order of the selection, one for each.
  std::vector<Attempt> process;        // Findings outside of any case: index is kLoad or kUnload.
  std::optional<DispatchCounts> dispatch;  // Of all workers; none where nothing ran.
  bool is_interrupted = false;
  std::string observer_failure;  // "" unless the observer threw.
  double wall_seconds = 0;
};
constexpr size_t kLoad = SIZE_MAX, kUnload = SIZE_MAX - 1;

// How far a run is: cases first, then failures that are confirmed.
struct Position {
  bool is_confirming = false;
  size_t done = 0;
  size_t total = 0;
};

// Sees each attempt as it ends, under a lock of the supervisor. One that throws ends the run: what
// it says is RunReport::observer_failure.
using Observer = std::function<void(const Attempt&, const Position&)>;

class Supervisor {
 public:
  Supervisor(const RunOptions& options, const CaseList& cases, Observer observer)
      : options_(options), cases_(cases), observer_(std::move(observer)) {}

  // `probed` is what a worker that ran nothing has found of the backend.
  RunReport run(const std::vector<size_t>& selection, const BatchReport& probed);

 private:
  struct Entry {
    Final result;
    bool is_done = false;
    bool is_known = false;                             // From an earlier run.
    std::shared_ptr<const std::vector<size_t>> batch;  // What ran in that worker, in order.
    size_t position = 0;                               // Of the case in `batch`.
  };

  using FailsAfter = std::function<bool(const std::vector<size_t>& before)>;
  struct Trigger {
    std::vector<size_t> cases;  // In the order in which they run.
    bool is_enough = false;     // The case fails after them alone.
  };

  void run_round(const std::vector<size_t>& selection, int attempt);
  void run_pending(std::deque<size_t> pending, int jobs, int attempt);
  void serve(int attempt);
  std::vector<size_t> take_batch();
  bool take_attempt(const Attempt& attempt);
  void check_device();
  void settle(const std::shared_ptr<const std::vector<size_t>>& batch, const BatchReport& report);
  void take_process_findings(const BatchReport& report);
  void note_process(size_t where, const Result& result);

  void confirm_all(const std::vector<size_t>& selection);
  void confirm(Entry& entry);
  void blame_order(Entry& entry);
  Trigger find_trigger(std::vector<size_t> before, const FailsAfter& fails_after);
  // Runs `before`, then `failed`, in a fresh worker; its attempt if it was reached.
  std::optional<Attempt> repeat(const std::vector<size_t>& before, const Attempt& failed,
                                int attempt);

  void observe(const Attempt& attempt);
  void stop(std::string reason);
  bool is_stopped() const { return is_stopped_; }

  const RunOptions& options_;
  const CaseList& cases_;
  Observer observer_;

  std::mutex mutex_;  // For everything below.
  std::condition_variable changed_;
  std::deque<size_t> pending_;
  size_t batch_size_ = 1;
  int busy_ = 0;
  int load_failures_ = 0;  // In a row.
  int crashes_ = 0;
  Position position_;
  std::string stop_reason_;
  std::atomic<bool> is_stopped_ = false;  // Read without the lock.
  std::vector<Entry> entries_;            // By index of the list of cases.
  RunReport report_;
};

// Whether two runs of one case ended in the same way.
bool ended_alike(const Result& a, const Result& b);

// Groups failures of one kind: tag, op or group, dtype, outcome and cause.
std::string signature(const Case& which, const Result& result);

}  // namespace bp::conformance
