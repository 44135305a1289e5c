// The verb stress: runs cases again and again in one process for hours, and watches what grows.
#include <algorithm>
#include <chrono>
#include <iostream>

#include "conformance/cli/progress.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/report/files.hpp"
#include "conformance/report/soak.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kRoundsOfWorker = 100000;
constexpr size_t kMostRuns = size_t{1} << 22;  // Of one worker, in the list that it gets.

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Stress {
 public:
  Stress(const CommandLine& line, const CaseList& cases, std::vector<size_t> selection)
      : line_(line),
        cases_(cases),
        selection_(std::move(selection)),
        progress_(line.is_quiet, true) {}

  // Returns the exit code.
  int run() {
    SessionOptions session = line_.run.session;
    session.interrupt_fd = interrupt_descriptor();
    session.setup.tells_device_memory = true;
    const size_t rounds = std::clamp(kMostRuns / selection_.size(), size_t{1}, kRoundsOfWorker);
    std::vector<size_t> batch;
    for (size_t i = 0; i < rounds; ++i) {
      batch.insert(batch.end(), selection_.begin(), selection_.end());
    }
    BatchReport report;
    do {
      soak_ = Soak();  // Each process has figures of its own.
      in_round_ = 0;
      round_start_ = std::chrono::steady_clock::now();
      report = run_batch(session, cases_, batch, 1,
                         [&](const Attempt& attempt) { return take(attempt); });
    } while (goes_on(report));
    progress_.clear();
    return finish(report);
  }

 private:
  bool is_over() const { return seconds_since(start_) >= line_.stress_hours * 3600; }

  // A failure ends the run: what comes after it would say little.
  bool goes_on(const BatchReport& report) const {
    return !is_over() && failure_.empty() && !report.is_interrupted && !report.load_failure &&
           !report.has_died;
  }

  // Takes one result, and looks at the process after each round. Returns whether to go on.
  bool take(const Attempt& attempt) {
    ++runs_;
    const Result& result = attempt.result;
    if (count_of(result.outcome) == Count::kFailed) {
      failure_ = cases_[attempt.index].id + " failed in round " + std::to_string(rounds_ + 1) +
                 ": " + outcome_name(result.outcome) + ": " + result.message;
      return false;
    }
    passed_ += count_of(result.outcome) == Count::kPassed;
    if (++in_round_ == selection_.size()) end_round(attempt);
    const double share = seconds_since(start_) / (line_.stress_hours * 3600);
    progress_.update({.done = static_cast<size_t>(std::min(share, 1.0) * 1000),
                      .total = 1000,
                      .what = cases_[attempt.index].id});
    return !is_over();
  }

  void end_round(const Attempt& last) {
    ++rounds_;
    in_round_ = 0;
    if (std::optional<SoakSample> sample = look_at_process(last.pid)) {
      sample->seconds = seconds_since(start_);
      sample->round_seconds = seconds_since(round_start_);
      sample->device_bytes = last.device_bytes;
      if (!line_.temperature.empty()) sample->degrees = read_degrees(line_.temperature);
      soak_.add(*sample);
    }
    round_start_ = std::chrono::steady_clock::now();
  }

  int finish(const BatchReport& report) {
    if (report.load_failure) failure_ = "the plugin does not load: " + report.load_failure->message;
    if (report.unload_failure) failure_ = "unload: " + report.unload_failure->message;
    if (report.has_died && failure_.empty()) failure_ = "the process of the cases died";
    std::vector<std::string> findings = soak_.findings();
    if (!failure_.empty()) findings.insert(findings.begin(), failure_);
    const std::string time = duration_of(seconds_since(start_));
    std::cout << rounds_ << " rounds of " << selection_.size() << " cases in " << time << ", "
              << runs_ << " runs, " << passed_ << " passed\n"
              << soak_.text();
    for (const std::string& finding : findings) std::cout << "finding: " << finding << "\n";
    const bool is_shown = soak_.is_enough();
    std::cout << "verdict: " << verdict(report, !findings.empty(), is_shown) << " after " << time
              << "\n";
    if (!line_.json_file.empty()) {
      write_file(line_.json_file, json_text({{"suite", kSuiteVersion},
                                             {"plugin", line_.plugin},
                                             {"rounds", rounds_},
                                             {"runs", runs_},
                                             {"passed", passed_},
                                             {"findings", findings},
                                             {"samples", soak_.json()}},
                                            1) +
                                      "\n");
    }
    if (report.is_interrupted) return kExitInterrupted;
    if (report.load_failure) return kExitNotLoaded;
    if (!findings.empty()) return kExitFailures;
    return passed_ == 0 || !is_shown ? kExitNothingRan : kExitOk;
  }

  std::string verdict(const BatchReport& report, bool has_findings, bool is_shown) const {
    if (report.is_interrupted) return "INTERRUPTED";
    if (has_findings) return "NOT STEADY";
    if (passed_ == 0) return "NOTHING SHOWN: no case ran to a pass";
    return is_shown ? "STEADY" : "NOTHING SHOWN: there were too few rounds to see growth";
  }

  static std::string duration_of(double seconds) {
    return seconds < 3600 ? fixed_text(seconds / 60, 1) + " minutes"
                          : fixed_text(seconds / 3600, 2) + " hours";
  }

  const CommandLine& line_;
  const CaseList& cases_;
  std::vector<size_t> selection_;
  Progress progress_;
  Soak soak_;
  std::string failure_;
  size_t rounds_ = 0, in_round_ = 0, runs_ = 0, passed_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point round_start_ = start_;
};

}  // namespace

int stress_verb(const CommandLine& line) {
  const SharedCases made = cases_for(line.selection);
  const CaseList& cases = *made;
  std::vector<size_t> selection = select_cases(cases, line.selection);
  if (!line.temperature.empty()) static_cast<void>(read_degrees(line.temperature));
  return Stress(line, cases, std::move(selection)).run();
}

}  // namespace bp::conformance
