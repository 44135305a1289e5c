// `selftest --random N`: draws mutants, lets each meet the cases of its op or table, and prints the
// share that the suite kills.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <thread>

#include "conformance/cli/progress.hpp"
#include "conformance/cli/selftest.hpp"
#include "conformance/cli/trials_page.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/faults/generator.hpp"
#include "conformance/faults/ops.hpp"
#include "conformance/faults/tally.hpp"
#include "conformance/json_file.hpp"
#include "conformance/report/files.hpp"

namespace bp::conformance {
namespace {

using faults::Fate;
using faults::Fault;
using faults::Sightings;
using faults::Trial;
using nlohmann::json;

constexpr size_t kEnoughFailures = 3;  // A mutant meets no more cases once so many have failed.

// The file in which a plugin counts. The plugin opens it by its path.
class SightingsFile {
 public:
  SightingsFile() {
    path_ = (std::filesystem::temp_directory_path() / "bp-sightings-XXXXXX").string();
    file_ = mkostemp(path_.data(), O_CLOEXEC);
    if (file_ < 0) throw UsageError("selftest cannot make a file in " + path_);
    write({});
  }
  ~SightingsFile() {
    close(file_);
    unlink(path_.c_str());
  }
  SightingsFile(const SightingsFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const Sightings& counts) const {
    const auto size = static_cast<ssize_t>(sizeof(counts));
    if (pwrite(file_, &counts, sizeof(counts), 0) != size) {
      throw UsageError("selftest cannot write to " + path_);
    }
  }
  Sightings read() const {
    Sightings counts;
    const auto size = static_cast<ssize_t>(sizeof(counts));
    if (pread(file_, &counts, sizeof(counts), 0) != size) return {};
    return counts;
  }

 private:
  std::string path_;
  int file_;
};

// Returns the groups of cases that a fault of the table can fail.
std::vector<std::string> groups_of(const std::string& table) {
  std::vector<std::string> groups = {table + ".", "failure."};
  if (table == "memory") groups.insert(groups.end(), {"virtual_memory.", "stream.", "thread."});
  if (table == "stream") groups.insert(groups.end(), {"event.", "thread."});
  if (table == "event") groups.insert(groups.end(), {"stream.", "thread."});
  if (table == "compiler") groups.emplace_back("described_op.");
  if (table == "layout") groups.emplace_back("kernel.preferred_layout_is_right.");
  return groups;
}

// Most faults of kernels read and write tensors through the host, and so wait for the stream of the
// launch. This is not their fault, and must not count as found, nor take long.
bool waits_for_its_stream(const Fault& fault) {
  constexpr std::string_view kOthers[] = {"skipped",   "refused",  "device_leak",
                                          "host_leak", "blocking", "wrong_stream"};
  return !fault.is_of_table() && std::ranges::find(kOthers, fault.kind) == std::end(kOthers);
}

// Returns whether the case launches while it holds the stream.
bool holds_streams(const Case& which) {
  constexpr std::string_view kSentences[] = {"kernel.launches_in_flight_keep_apart.",
                                             "kernel.launch_waits_for_nothing.",
                                             "kernel.launch_allocates_no_device_memory."};
  return std::ranges::any_of(kSentences, [&](auto each) { return which.id.starts_with(each); });
}

bool is_met_by(const Fault& fault, const Case& which) {
  if (!fault.is_of_table()) {
    return which.op == faults::find_op(fault.subject)->id &&
           !(waits_for_its_stream(fault) && holds_streams(which));
  }
  const std::vector<std::string> groups =
      groups_of(fault.subject.substr(0, fault.subject.find('.')));
  return std::ranges::any_of(groups, [&](const std::string& g) { return which.id.starts_with(g); });
}

// Takes the failures of one mutant.
class Findings {
 public:
  Findings(const CaseList& cases, Trial& trial) : cases_(cases), trial_(trial) {}

  // Returns false once enough cases have failed.
  bool take(const Attempt& attempt) {
    ++trial_.cases;
    const Result& result = attempt.result;
    if (count_of(result.outcome) != Count::kFailed) return true;
    const std::string cause =
        result.cause.empty() ? std::string(outcome_name(result.outcome)) : result.cause;
    if (cause == "blocks" && waits_for_its_stream(trial_.fault)) return true;
    if (trial_.failed++ == 0) {
      trial_.killer = cases_[attempt.index].id;
      trial_.message = result.message;
    }
    const size_t count = ++counts_[{cause, result.tag}];
    if (count > most_) {
      most_ = count;
      trial_.cause = cause;
      trial_.tag = result.tag;
    }
    return trial_.failed < kEnoughFailures;
  }

 private:
  const CaseList& cases_;
  Trial& trial_;
  std::map<std::pair<std::string, std::string>, size_t> counts_;
  size_t most_ = 0;
};

// Returns the faults that the command line names.
std::vector<Fault> named_faults(const CommandLine& line) {
  std::vector<Fault> named;
  for (const std::string& text : line.faults) {
    const auto fault = faults::fault_from_text(text);
    if (!fault || (!fault->is_of_table() && faults::find_op(fault->subject) == nullptr)) {
      throw UsageError("--fault is '" + text +
                       "'; allowed: what selftest --random prints, such as "
                       "matmul/f32/row_tail16/offset/small/71");
    }
    named.push_back(*fault);
  }
  return named;
}

void check_family(const CommandLine& line) {
  const std::vector<std::string> all = faults::families();
  if (line.family.empty() || std::ranges::find(all, line.family) != all.end()) return;
  std::string names;
  for (const std::string& family : all) names += (names.empty() ? "" : ", ") + family;
  throw UsageError("--only is '" + line.family + "'; allowed: " + names);
}

class RandomSelftest {
 public:
  RandomSelftest(const CommandLine& line, const CaseList& cases)
      : line_(line), cases_(cases), progress_(line.is_quiet, true) {
    wrapped_ = wrapped_path(line_.plugin);
    line_.plugin = mutant_plugin(line_);
    line_.run.session.setup.plugin = line_.plugin;
    line_.run.session.interrupt_fd = interrupt_descriptor();
  }

  // Draws as many faults as the command line asks for, or as there are.
  std::vector<Fault> draw() {
    std::vector<Fault> drawn;
    faults::Generator generator(line_.run.session.seed, subjects(), line_.family);
    while (drawn.size() < line_.random_count) {
      const std::optional<Fault> fault = generator.next();
      if (!fault) break;
      drawn.push_back(*fault);
    }
    return drawn;
  }

  // Runs all mutants. Returns false if the run was interrupted.
  bool run(const std::vector<Fault>& drawn, std::vector<Trial>& trials) {
    trials.resize(drawn.size());
    std::vector<std::thread> threads;
    for (int i = 0; i < std::max(1, line_.run.jobs); ++i) {
      threads.emplace_back([&] { serve(drawn, trials); });
    }
    for (std::thread& thread : threads) thread.join();
    progress_.clear();
    if (!problem_.empty()) throw UsageError(problem_);
    return !is_interrupted_;
  }

 private:
  // Asks the good backend which ops and dtypes its kernels claim.
  std::vector<faults::Subject> subjects() {
    CommandLine good = line_;
    good.plugin = good.run.session.setup.plugin = wrapped_;
    BatchReport probed;
    if (!probe(good, cases_, probed)) throw UsageError(wrapped_ + " does not load");
    const json& target = probed.hello.at("targets").at(probed.hello.value("target", size_t{0}));
    std::map<std::string, std::set<std::string>> claims;
    for (const json& kernel : target.at("kernels")) {
      const std::string op = kernel.value("op", "");
      if (faults::find_op(op) == nullptr) continue;
      std::set<std::string>& dtypes = claims[op];
      for (const json& row : kernel.at("dtype_rows")) {
        for (const json& dtype : row) {
          if (is_known_dtype(dtype)) dtypes.insert(dtype.get<std::string>());
        }
      }
    }
    std::vector<faults::Subject> subjects;
    subjects.reserve(claims.size());
    for (const auto& [op, dtypes] : claims) {
      subjects.push_back({op, {dtypes.begin(), dtypes.end()}});
    }
    return subjects;
  }

  static bool is_known_dtype(const json& name) {
    static const std::set<std::string> known = {"bool", "u8",  "i8",   "i16", "i32",
                                                "i64",  "f16", "bf16", "f32", "f64"};
    return known.contains(name.get<std::string>());
  }

  // Each thread of the selftest runs it.
  void serve(const std::vector<Fault>& drawn, std::vector<Trial>& trials) {
    try {
      const SightingsFile sightings;
      for (;;) {
        const size_t index = next_++;
        if (index >= drawn.size() || is_interrupted_) return;
        trials[index] = run_one(drawn[index], sightings);
        const std::lock_guard lock(mutex_);
        ++done_;
        killed_ += trials[index].fate == Fate::kKilled;
        progress_.update({.done = done_,
                          .total = drawn.size(),
                          .failed = killed_,
                          .what = faults::text_of(drawn[index])});
      }
    } catch (const std::exception& e) {
      const std::lock_guard lock(mutex_);
      problem_ = e.what();
      is_interrupted_ = true;
    }
  }

  std::vector<size_t> cases_of(const Fault& fault) const {
    std::vector<size_t> selection;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Case& which = cases_[i];
      if (which.tier <= line_.selection.tier && is_met_by(fault, which)) selection.push_back(i);
    }
    // Launches of the op itself come first, and those of the fault's dtype before others, because
    // they are the most likely to fail and the best to tell why.
    std::stable_partition(selection.begin(), selection.end(),
                          [&](size_t i) { return cases_[i].dtype == fault.dtype; });
    std::stable_partition(selection.begin(), selection.end(),
                          [&](size_t i) { return cases_[i].id.starts_with("op."); });
    return selection;
  }

  Trial run_one(const Fault& fault, const SightingsFile& sightings) {
    const auto start = std::chrono::steady_clock::now();
    Trial trial{.fault = fault};
    sightings.write({});
    SessionOptions options = line_.run.session;
    options.setup.options = {{"mutant", "fault:" + faults::text_of(fault)},
                             {"wrap", wrapped_},
                             {"sightings", sightings.path()}};
    if (waits_for_its_stream(fault)) {
      options.setup.case_options.launch_patience_ms = kShortPatienceMs;
    }
    Findings findings(cases_, trial);
    const std::vector<size_t> selection = cases_of(fault);
    const BatchReport report =
        run_batch(options, cases_, selection, 1,
                  [&](const Attempt& attempt) { return findings.take(attempt); });
    trial.sightings = sightings.read();
    trial.has_run = !report.is_interrupted;
    if (report.is_interrupted) is_interrupted_ = true;
    if (report.load_failure) return with_load_failure(trial, *report.load_failure);
    trial.fate = faults::fate_of(trial.sightings, trial.failed);
    trial.is_right_cause = faults::is_right_cause(fault, trial.killer, trial.cause, trial.tag);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    trial.seconds = seconds.count();
    return trial;
  }

  // A backend that does not load with the fault has no kernel or entry to break, or shows the fault
  // at once.
  static Trial with_load_failure(Trial trial, const Result& failure) {
    const bool is_absent = failure.message.find("the wrapped backend has no") != std::string::npos;
    trial.fate = is_absent ? Fate::kAbsent : Fate::kKilled;
    trial.killer = "load";
    trial.cause = failure.cause;
    trial.tag = failure.tag;
    trial.message = failure.message;
    trial.is_right_cause = true;
    return trial;
  }

  CommandLine line_;
  const CaseList& cases_;
  Progress progress_;
  std::string wrapped_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> is_interrupted_ = false;
  std::mutex mutex_;  // Guards all members below, and progress_ while threads run.
  size_t done_ = 0, killed_ = 0;
  std::string problem_;
};

}  // namespace

int random_selftest(const CommandLine& line) {
  const auto start = std::chrono::steady_clock::now();
  check_family(line);
  std::vector<Fault> drawn = named_faults(line);
  const CaseList& cases = CaseList::whole_suite();
  RandomSelftest selftest(line, cases);
  if (drawn.empty()) drawn = selftest.draw();
  if (drawn.empty()) throw NothingMatched("the backend can have no fault of this kind");
  std::vector<Trial> trials;
  const bool is_complete = selftest.run(drawn, trials);
  std::erase_if(trials, [](const Trial& trial) { return !trial.has_run; });
  print_trials(trials, line.is_verbose);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("\n%zu mutants at tier %s with seed %llu in %.0f s\n", trials.size(),
              tier_name(line.selection.tier),
              static_cast<unsigned long long>(line.run.session.seed), seconds.count());
  if (!line.json_file.empty()) write_file(line.json_file, document_of(trials, line));
  if (!is_complete) return kExitInterrupted;
  const bool survives =
      std::ranges::any_of(trials, [](const Trial& trial) { return trial.fate == Fate::kSurvived; });
  return survives ? kExitFailures : kExitOk;
}

}  // namespace bp::conformance
