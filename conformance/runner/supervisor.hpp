// Runs a selection of cases in workers, charges deaths to the cases that caused them, and confirms
// each failure in a process of its own. The supervisor never loads a backend.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "conformance/runner/session.hpp"

namespace bp::conformance {

// The final result of a case of the selection.
struct Final {
  size_t index = 0;
  Attempt attempt;
  int attempt_count = 0;
  bool is_confirmed = false;  // The case failed again, alone in a fresh worker.
};

struct RunOptions {
  SessionOptions session;
  size_t batch = 200;       // The most cases in one worker.
  bool keeps_size = false;  // Batches do not shrink after a death.
  int jobs = 1;
  int retries = 1;  // The number of solo runs that confirm a failure.
  int max_crashes = 100;
  bool fail_fast = false;
  int repeat = 1;
  std::vector<Final> known;  // The results of cases that an earlier run has settled. These cases do
                             // not run again.
  // Returns whether a failure is expected. An expected failure neither stops the run nor counts as
  // a crash.
  std::function<bool(const Case&, const Result&)> is_expected;
};

struct RunReport {
  nlohmann::json hello;
  std::optional<Result> load_failure;  // Set if the backend never loaded.
  std::vector<Final> finals;           // One result for each case, in the order of the selection.
  std::vector<Attempt> process;        // Findings that belong to no case: index is kLoad or
                                       // kUnload.
  std::optional<DispatchCounts> dispatch;  // The counts of all workers; none if nothing ran.
  bool is_interrupted = false;
  std::string observer_failure;  // "" unless the observer threw.
  double wall_seconds = 0;
};
constexpr size_t kLoad = SIZE_MAX, kUnload = SIZE_MAX - 1;

// The progress of a run, which first runs all cases and then confirms failures.
struct Position {
  bool is_confirming = false;
  size_t done = 0;
  size_t total = 0;
};

// Called for each attempt as it ends, under a lock of the supervisor. If it throws, the run ends,
// and RunReport::observer_failure holds the message.
using Observer = std::function<void(const Attempt&, const Position&)>;

class Supervisor {
 public:
  Supervisor(const RunOptions& options, const CaseList& cases, Observer observer)
      : options_(options), cases_(cases), observer_(std::move(observer)) {}

  // Runs the selection. `probed` is what a worker that ran no case has found about the backend.
  RunReport run(const std::vector<size_t>& selection, const BatchReport& probed);

 private:
  struct Entry {
    Final result;
    bool is_done = false;
    bool is_known = false;                             // The result is from an earlier run.
    std::shared_ptr<const std::vector<size_t>> batch;  // The cases of that worker, in the order in
                                                       // which they ran.
    size_t position = 0;                               // The position of the case in `batch`.
  };

  // Returns whether a case fails after the cases `before`.
  using FailsAfter = std::function<bool(const std::vector<size_t>& before)>;
  struct Trigger {
    std::vector<size_t> cases;  // The cases in the order in which they run.
    bool is_enough = false;     // The case fails after these cases alone.
  };

  void run_round(const std::vector<size_t>& selection, int attempt);
  void run_pending(std::deque<size_t> pending, int jobs, int attempt);
  void serve(int attempt);
  // Calls `serve` in `count` threads, and returns when all of them have ended. If one of them
  // cannot be started, the run ends, and the others end with it.
  void run_threads(int count, const std::function<void()>& serve);
  std::vector<size_t> take_batch();
  // Runs a batch in a fresh worker. If no worker can be started, the run ends and the report is
  // empty.
  BatchReport run_worker(std::span<const size_t> batch, int attempt, const OnAttempt& on_attempt);
  bool take_attempt(const Attempt& attempt);
  // Ends the run because the suite could not do `step`.
  void give_up(const std::string& step, const std::exception& e);
  void check_device();
  void settle(const std::shared_ptr<const std::vector<size_t>>& batch, const BatchReport& report);
  void take_process_findings(const BatchReport& report);
  // A rule of the layer `fault` that no worker had a call for fails the run: it tested nothing.
  void note_idle_rules();
  // Ends the run if the backend did not load several times in a row.
  void take_load_failure(const Result& failure);
  void note_process(size_t where, const Result& result);

  void confirm_all(const std::vector<size_t>& selection);
  void confirm(Entry& entry);
  void blame_order(Entry& entry);
  Trigger find_trigger(std::vector<size_t> before, const FailsAfter& fails_after);
  // Runs `before`, then `failed`, in a fresh worker. Returns the attempt of `failed`, if the worker
  // reached it.
  std::optional<Attempt> repeat(const std::vector<size_t>& before, const Attempt& failed,
                                int attempt);

  void observe(const Attempt& attempt);
  void stop(std::string reason);
  bool is_stopped() const { return is_stopped_; }

  const RunOptions& options_;
  const CaseList& cases_;
  Observer observer_;

  std::mutex mutex_;  // Guards all members below.
  std::condition_variable changed_;
  std::deque<size_t> pending_;
  size_t batch_size_ = 1;
  int busy_ = 0;
  int load_failures_ = 0;  // The number of load failures in a row.
  int crashes_ = 0;
  Position position_;
  std::string stop_reason_;
  std::atomic<bool> is_stopped_ = false;      // Read without the lock.
  size_t worker_count_ = 0;                   // The number of workers that ran cases.
  std::map<std::string, size_t> idle_rules_;  // In how many of them no call fitted a rule.
  std::vector<Entry> entries_;                // The entries by index of the list of cases.
  RunReport report_;
};

// Returns whether two runs of one case ended in the same way.
bool ended_alike(const Result& a, const Result& b);

// Returns a text that groups failures of one kind: tag, op or group, dtype, outcome and cause.
std::string signature(const Case& which, const Result& result);

}  // namespace bp::conformance
