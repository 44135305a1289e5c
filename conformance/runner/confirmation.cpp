// The second half of a run. Each failure is repeated alone in a fresh worker. If the case passes
// there, the cases that ran before it are to blame, or the failure is a Flake.
#include <algorithm>
#include <map>

#include "conformance/runner/supervisor.hpp"

namespace bp::conformance {
namespace {

constexpr int kConfirmedPerSignature = 20;
constexpr size_t kBlamedCases = 8;  // The most predecessors that an order dependence names.

bool needs_confirmation(Outcome outcome) {
  return outcome == Outcome::kFail || outcome == Outcome::kCrash || outcome == Outcome::kTimeout ||
         outcome == Outcome::kDeviceLost;
}

}  // namespace

std::optional<Attempt> Supervisor::repeat(const std::vector<size_t>& before, const Attempt& failed,
                                          int attempt) {
  std::vector<size_t> batch = before;
  batch.push_back(failed.index);
  std::optional<Attempt> found;
  const BatchReport report = run_worker(batch, attempt, [&](const Attempt& a) {
    if (a.index == failed.index) found = a;
    return true;
  });
  // A worker that died between two cases dies here before the orderly end, because no next case
  // follows.
  if (failed.is_after_end && found && report.unload_failure) found->result = *report.unload_failure;
  const std::lock_guard lock(mutex_);
  if (report.is_interrupted) {
    report_.is_interrupted = true;
    stop("not reached: interrupted");
  }
  if (report.load_failure) {
    take_load_failure(*report.load_failure);
  } else {
    load_failures_ = 0;
  }
  if (found) observe(*found);
  return found;
}

void Supervisor::confirm_all(const std::vector<size_t>& selection) {
  std::map<std::string, int> seen;
  std::deque<size_t> waiting;
  for (const size_t index : selection) {
    const Entry& entry = entries_[index];
    if (!entry.is_done) continue;
    const Result& result = entry.result.attempt.result;
    if (!needs_confirmation(result.outcome)) continue;
    if (options_.is_expected && options_.is_expected(cases_[index], result)) continue;
    if (++seen[signature(cases_[index], result)] > kConfirmedPerSignature) continue;
    waiting.push_back(index);
  }
  position_ = {.is_confirming = true, .done = 0, .total = waiting.size()};

  const auto serve_waiting = [&] {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (waiting.empty() || is_stopped()) return;
      const size_t index = waiting.front();
      waiting.pop_front();
      lock.unlock();
      confirm(entries_[index]);
      lock.lock();
      ++position_.done;
    }
  };
  run_threads(options_.jobs, serve_waiting);
}

void Supervisor::confirm(Entry& entry) {
  Final& final = entry.result;
  for (int retry = 1; retry <= options_.retries; ++retry) {
    const std::optional<Attempt> solo = repeat({}, final.attempt, options_.repeat + retry);
    // Without an attempt nothing more is known of the failure than before.
    if (is_stopped() || !solo) return;
    ++final.attempt_count;
    if (ended_alike(solo->result, final.attempt.result)) continue;
    if (count_of(solo->result.outcome) == Count::kFailed) {
      // The case fails alone too, but in another way: the result of the fresh process counts.
      final.attempt = *solo;
      final.is_confirmed = true;
      return;
    }
    blame_order(entry);
    return;
  }
  final.is_confirmed = true;
}

// Handles a case that failed in its batch and passed alone: a predecessor is to blame, or the
// failure is a Flake. If a repetition gives no attempt, nothing more is known of the failure than
// before, and it stays as it is.
void Supervisor::blame_order(Entry& entry) {
  Final& final = entry.result;
  const int attempt = options_.repeat + options_.retries + 1;
  const Attempt failed = final.attempt;
  const Result& failure = failed.result;
  const std::vector<size_t> before(
      entry.batch->begin(), entry.batch->begin() + static_cast<std::ptrdiff_t>(entry.position));
  bool has_missing = false;
  const FailsAfter fails_after = [&](const std::vector<size_t>& cases) {
    if (has_missing) return false;  // The answer no longer counts.
    const std::optional<Attempt> again = repeat(cases, failed, attempt);
    has_missing = !again;
    return again && ended_alike(again->result, failure);
  };
  Result& result = final.attempt.result;
  const bool depends = !before.empty() && fails_after(before);
  const Trigger trigger = depends ? find_trigger(before, fails_after) : Trigger{};
  if (is_stopped() || has_missing) return;
  result.details["was"] = outcome_name(failure.outcome);
  result.details["was_cause"] = failure.cause;
  if (!depends || (!trigger.is_enough && trigger.cases.size() < kBlamedCases)) {
    result.outcome = Outcome::kFlake;
    result.message = std::string(outcome_name(failure.outcome)) +
                     " once, but not when it was repeated: " + failure.message;
    return;
  }
  std::string names;
  for (const size_t index : trigger.cases) {
    names += (names.empty() ? "" : ", ") + cases_[index].id;
  }
  result.outcome = Outcome::kFail;
  result.cause = "order";
  result.details["after"] = names;
  result.message = "passes alone, fails after " + names + (trigger.is_enough ? "" : " and more") +
                   ": " + failure.message;
  final.is_confirmed = true;
}

// Each step finds, by bisection, the last predecessor without which the case passes. The step keeps
// this predecessor and the ones found before it, and drops all cases that ran before it.
Supervisor::Trigger Supervisor::find_trigger(std::vector<size_t> before,
                                             const FailsAfter& fails_after) {
  Trigger trigger;
  while (trigger.cases.size() < kBlamedCases && !before.empty() && !is_stopped()) {
    size_t low = 0, high = before.size();  // The case fails without the first `low` predecessors,
                                           // and passes without the first `high`.
    while (high - low > 1 && !is_stopped()) {
      const size_t middle = (low + high) / 2;
      std::vector<size_t> tried = trigger.cases;
      tried.insert(tried.end(), before.begin() + static_cast<std::ptrdiff_t>(middle), before.end());
      (fails_after(tried) ? low : high) = middle;
    }
    trigger.cases.push_back(before[low]);
    trigger.is_enough = fails_after(trigger.cases);
    if (trigger.is_enough) break;
    before.erase(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(low) + 1);
  }
  return trigger;
}

}  // namespace bp::conformance
