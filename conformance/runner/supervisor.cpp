#include "conformance/runner/supervisor.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

namespace bp::conformance {
namespace {

constexpr int kLoadFailuresInARow = 3;
}  // namespace

bool ended_alike(const Result& a, const Result& b) {
  return a.outcome == b.outcome && a.cause == b.cause;
}

std::string signature(const Case& which, const Result& result) {
  std::string text = result.tag + '|' + which.group + '|';
  if (which.op != 0) text += std::to_string(which.op) + '|' + which.dtype + '|';
  return text + outcome_name(result.outcome) + '|' + result.cause;
}

RunReport Supervisor::run(const std::vector<size_t>& selection, const BatchReport& probed) {
  const Clock::time_point start = Clock::now();
  take_process_findings(probed);
  entries_.resize(cases_.size());
  for (const Final& final : options_.known) {
    entries_[final.index].result = final;
    entries_[final.index].is_done = entries_[final.index].is_known = true;
  }
  std::vector<size_t> wanted;
  std::ranges::copy_if(selection, std::back_inserter(wanted),
                       [&](size_t index) { return !entries_[index].is_known; });
  position_.total = wanted.size() * static_cast<size_t>(options_.repeat);
  for (int round = 1; round <= options_.repeat && !is_stopped(); ++round) {
    run_round(wanted, round);
  }
  note_idle_rules();
  if (!is_stopped() && options_.retries > 0) confirm_all(wanted);

  for (const size_t index : selection) {
    Entry& entry = entries_[index];
    entry.result.index = index;
    if (!entry.is_done) {
      entry.result.attempt.index = index;
      entry.result.attempt.result =
          is_stopped() ? Result{.outcome = Outcome::kSkip, .message = stop_reason_}
                       : Result{.outcome = Outcome::kHarnessError,
                                .message = "the case was selected and has no result",
                                .cause = "harness"};
      if (!report_.load_failure) observe(entry.result.attempt);
    }
    report_.finals.push_back(std::move(entry.result));
  }
  report_.wall_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return std::move(report_);
}

void Supervisor::run_round(const std::vector<size_t>& selection, int attempt) {
  std::deque<size_t> shared, exclusive;
  for (const size_t index : selection) {
    (cases_[index].is_exclusive ? exclusive : shared).push_back(index);
  }
  run_pending(std::move(shared), options_.jobs, attempt);
  run_pending(std::move(exclusive), 1, attempt);
}

void Supervisor::run_pending(std::deque<size_t> pending, int jobs, int attempt) {
  pending_ = std::move(pending);
  batch_size_ = options_.batch;
  run_threads(jobs, [this, attempt] { serve(attempt); });
}

void Supervisor::run_threads(int count, const std::function<void()>& serve) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(serve);
  } catch (const std::exception& e) {
    give_up("start thread " + std::to_string(threads.size() + 1) + " of " + std::to_string(count) +
                " (--jobs)",
            e);
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs one worker after the other; each thread of the supervisor runs this function.
void Supervisor::serve(int attempt) {
  for (;;) {
    const auto batch = std::make_shared<const std::vector<size_t>>(take_batch());
    if (batch->empty()) return;
    const BatchReport report =
        run_worker(*batch, attempt, [&](const Attempt& a) { return take_attempt(a); });
    settle(batch, report);
    if (report.is_abandoned) check_device();
  }
}

// The threads of the supervisor call it, and no exception may leave them.
BatchReport Supervisor::run_worker(std::span<const size_t> batch, int attempt,
                                   const OnAttempt& on_attempt) {
  try {
    return run_batch(options_.session, cases_, batch, attempt, on_attempt);
  } catch (const std::exception& e) {
    give_up("run a worker", e);
    return {};
  }
}

void Supervisor::give_up(const std::string& step, const std::exception& e) {
  const std::string reason = "the suite could not " + step + ": " + e.what();
  const std::lock_guard lock(mutex_);
  stop(reason);
  note_process(kLoad, {.outcome = Outcome::kHarnessError, .message = reason});
}

// A worker that survived SIGKILL still holds the device. Nothing else runs unless a fresh worker
// can load and unload the backend.
void Supervisor::check_device() {
  const BatchReport report = run_worker({}, 1, [](const Attempt&) { return true; });
  const std::lock_guard lock(mutex_);
  if (report.load_failure) {
    stop("not reached: a worker could not be killed, and the device does not answer since: " +
         report.load_failure->message);
  }
}

// Returns the next cases to run, or nothing if no work is left.
std::vector<size_t> Supervisor::take_batch() {
  std::unique_lock lock(mutex_);
  // A batch that still runs may give cases back.
  changed_.wait(lock, [this] { return is_stopped() || !pending_.empty() || busy_ == 0; });
  std::vector<size_t> batch;
  if (is_stopped()) return batch;
  const size_t fair =
      std::max<size_t>(1, pending_.size() / static_cast<size_t>(std::max(1, options_.jobs)));
  size_t size = std::min(batch_size_, pending_.size());
  if (options_.jobs > 1) size = std::min(size, fair);
  for (; batch.size() < size; pending_.pop_front()) batch.push_back(pending_.front());
  if (!batch.empty()) ++busy_;
  return batch;
}

bool Supervisor::take_attempt(const Attempt& attempt) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[attempt.index];
  Final& final = entry.result;
  const bool is_new_round = !entry.is_done || final.attempt.number != attempt.number;
  if (is_new_round) ++position_.done;
  ++final.attempt_count;
  const bool was_flake = entry.is_done && final.attempt.result.outcome == Outcome::kFlake;
  if (was_flake) {
    // The first two rounds that disagreed made it a Flake; another round does not change that.
    final.attempt.number = attempt.number;
  } else if (entry.is_done && is_new_round && !ended_alike(final.attempt.result, attempt.result)) {
    Result flake = attempt.result;
    flake.outcome = Outcome::kFlake;
    flake.message =
        "round " + std::to_string(final.attempt.number) + ": " +
        outcome_name(final.attempt.result.outcome) + "; round " + std::to_string(attempt.number) +
        ": " + outcome_name(attempt.result.outcome) + ": " +
        (attempt.result.message.empty() ? final.attempt.result.message : attempt.result.message);
    final.attempt = attempt;
    final.attempt.result = std::move(flake);
  } else {
    final.attempt = attempt;
  }
  entry.is_done = true;
  observe(attempt);

  const Result& result = attempt.result;
  if (count_of(result.outcome) != Count::kFailed) return !is_stopped();
  if (options_.is_expected && options_.is_expected(cases_[attempt.index], result)) {
    return !is_stopped();
  }
  if (options_.fail_fast)
    stop("not reached: --fail-fast ended the run at " + cases_[attempt.index].id);
  const bool is_crash = result.outcome == Outcome::kCrash || result.outcome == Outcome::kTimeout;
  if (is_crash && ++crashes_ >= options_.max_crashes) {
    stop("not reached: the run ended after " + std::to_string(crashes_) +
         " crashes and hangs (--max-crashes)");
  }
  return !is_stopped();
}

void Supervisor::observe(const Attempt& attempt) {
  if (!report_.observer_failure.empty()) return;
  try {
    observer_(attempt, position_);
  } catch (const std::exception& e) {
    report_.observer_failure = e.what();
    stop("not reached: " + report_.observer_failure);
  }
}

void Supervisor::stop(std::string reason) {
  if (!is_stopped()) stop_reason_ = std::move(reason);
  is_stopped_ = true;
  changed_.notify_all();
}

void Supervisor::note_process(size_t where, const Result& result) {
  for (const Attempt& known : report_.process) {
    if (known.index == where && known.result.message == result.message) return;
  }
  Attempt attempt;
  attempt.index = where;
  attempt.result = result;
  report_.process.push_back(attempt);
  observe(attempt);
}

// Takes the findings of the worker that belong to no case.
void Supervisor::take_process_findings(const BatchReport& report) {
  if (!report.load_failure) {
    load_failures_ = 0;
    if (report_.hello.is_null()) report_.hello = report.hello;
    const uint64_t bytes = report.hello.value("output_bytes", uint64_t{0});
    if (bytes > 0) {
      note_process(kLoad, {.outcome = Outcome::kFail,
                           .message = "wrote " + std::to_string(bytes) +
                                      " bytes to standard streams while loading",
                           .cause = "output",
                           .tag = "ENTRY-4"});
    }
    for (const auto& change : report.hello.value("findings", nlohmann::json::array())) {
      note_process(kLoad, {.outcome = Outcome::kFail,
                           .message = "while loading, " + change.get<std::string>(),
                           .cause = "hygiene",
                           .tag = "ENTRY-4"});
    }
  } else if (report_.hello.is_null()) {
    report_.hello = report.hello;
    report_.load_failure = report.load_failure;
    stop("not reached: the backend does not load");
  } else {
    take_load_failure(*report.load_failure);
  }
  if (report.unload_failure) note_process(kUnload, *report.unload_failure);
}

void Supervisor::note_idle_rules() {
  for (const auto& [line, count] : idle_rules_) {
    if (count != worker_count_) continue;
    note_process(kUnload, {.outcome = Outcome::kFail,
                           .message = line + "; no case of this run makes such a call",
                           .cause = "layer"});
  }
}

void Supervisor::take_load_failure(const Result& failure) {
  note_process(kLoad, failure);
  if (++load_failures_ >= kLoadFailuresInARow) {
    stop("not reached: the backend does not load any more: " + failure.message);
  }
}

void Supervisor::settle(const std::shared_ptr<const std::vector<size_t>>& batch,
                        const BatchReport& report) {
  const std::lock_guard lock(mutex_);
  --busy_;
  if (report.finished_count > 0) {
    ++worker_count_;
    for (const std::string& line : report.idle_rules) ++idle_rules_[line];
    if (!report_.dispatch) report_.dispatch.emplace();
    report_.dispatch->add(report.dispatch);
  }
  if (report.is_interrupted) {
    report_.is_interrupted = true;
    stop("not reached: interrupted");
  } else if (!report.hello.is_null() || report.load_failure) {
    take_process_findings(report);
  }
  for (size_t i = 0; i < report.finished_count; ++i) {
    entries_[(*batch)[i]].batch = batch;
    entries_[(*batch)[i]].position = i;
  }
  // The cases that had not begun run again, in smaller batches until a batch ends well.
  pending_.insert(pending_.begin(),
                  batch->begin() + static_cast<std::ptrdiff_t>(report.finished_count),
                  batch->end());
  if (report.has_died && !options_.keeps_size) {
    batch_size_ = std::max<size_t>(1, (batch->size() - report.finished_count) / 2);
  } else if (!report.has_died) {
    batch_size_ = std::min(options_.batch, std::max<size_t>(1, batch_size_) * 2);
  }
  changed_.notify_all();
}

}  // namespace bp::conformance
