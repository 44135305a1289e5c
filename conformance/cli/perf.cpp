// The verb perf: measures the ceilings of a device and calls of each kind of op, verifies the
// results of timed calls, and prints how close the calls come to their roofs.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>

#include "conformance/cli/progress.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/perf/cache_size.hpp"
#include "conformance/perf/ceilings.hpp"
#include "conformance/perf/cost.hpp"
#include "conformance/perf/perf_list.hpp"
#include "conformance/perf/perf_report.hpp"
#include "conformance/report/file_hash.hpp"
#include "conformance/report/files.hpp"

namespace bp::conformance {
namespace {

bool is_ceiling(const Case& which) { return which.id.starts_with(kCeilingPrefix); }

// Returns whether the roof of a selected call needs the ceiling. All calls need the ceilings of
// memory and launches; only products need the peak of their dtype.
bool is_needed(const Case& ceiling, const CaseList& cases, const std::vector<size_t>& calls) {
  if (ceiling.op != BP_OP_MATMUL) return true;
  return std::ranges::any_of(calls, [&](size_t index) {
    const Case& call = cases[index];
    return call.dtype == ceiling.dtype && call.op_case && cost_of(*call.op_case).flops > 0;
  });
}

// The selected measurements, the ceilings first.
struct PerfSelection {
  std::vector<size_t> ceilings, calls;
};

PerfSelection select(const CaseList& cases, const SelectionQuery& query) {
  const std::vector<size_t> asked = select_cases(cases, query);
  PerfSelection selection;
  for (size_t i = 0; i < cases.size(); ++i) {
    const bool is_asked = std::ranges::count(asked, i) != 0;
    if (is_ceiling(cases[i]) && (is_asked || is_needed(cases[i], cases, asked))) {
      selection.ceilings.push_back(i);
    }
  }
  std::ranges::copy_if(asked, std::back_inserter(selection.calls),
                       [&](size_t index) { return !is_ceiling(cases[index]); });
  return selection;
}

// One run: passes over the ceilings, then the calls. It prints a line for each call as it ends.
class PerfRun {
 public:
  PerfRun(const CommandLine& line, const CaseList& cases, const BatchReport& probed,
          const std::string& log)
      : line_(line),
        cases_(cases),
        probed_(probed),
        has_color_(has_color(line)),
        log_(log, line.run.session.seed, cases),
        progress_(line.is_quiet, true) {}

  PerfSummary run(const PerfSelection& selection) {
    measure_ceilings(selection.ceilings);
    print(ceilings_text(ceilings_) + troubled_ + columns_text());
    if (!is_interrupted_) {
      for (PerfLine& line : measure(selection.calls)) lines_.push_back(std::move(line));
    }
    progress_.clear();
    log_.finish();
    return summarize_perf(std::move(lines_), ceilings_);
  }

  bool is_interrupted() const { return is_interrupted_; }

 private:
  // Keeps for each ceiling the line of the last pass, or of the first pass in which it failed.
  void measure_ceilings(const std::vector<size_t>& selection) {
    std::vector<Ceilings> passes;
    while (!is_interrupted_ && needs_another(passes)) {
      Ceilings& pass = passes.emplace_back();
      for (PerfLine& line : measure(selection)) {
        take_ceiling(line, pass);
        keep(std::move(line));
      }
      if (std::ranges::any_of(lines_, &PerfLine::is_failed)) break;
    }
    ceilings_ = best_of_passes(passes);
    for (const PerfLine& line : lines_) {
      if (!line.is_right()) troubled_ += line_text(line, has_color_);
    }
  }

  void keep(PerfLine line) {
    const auto found = std::ranges::find(lines_, line.id, &PerfLine::id);
    if (found == lines_.end()) {
      lines_.push_back(std::move(line));
    } else if (!found->is_failed()) {
      *found = std::move(line);
    }
  }

  std::vector<PerfLine> measure(const std::vector<size_t>& selection) {
    Supervisor supervisor(line_.run, cases_, [&](const Attempt& attempt, const Position& position) {
      see(attempt, position);
    });
    const RunReport report = supervisor.run(selection, probed_);
    is_interrupted_ = report.is_interrupted;
    if (!report.observer_failure.empty()) throw OutputError(report.observer_failure);
    std::vector<PerfLine> lines;
    for (const Final& final : report.finals) {
      lines.push_back(make_line(cases_[final.index], final.attempt.result, ceilings_));
    }
    for (const Attempt& attempt : report.process) {
      Case process;
      process.id = attempt.index == kLoad ? "load" : "unload";
      lines.push_back(make_line(process, attempt.result, ceilings_));
    }
    return lines;
  }

  void see(const Attempt& attempt, const Position& position) {
    log_.add(attempt);
    // measure() prints the line of an attempt at loading or unloading.
    if (attempt.index >= cases_.size()) return;
    const PerfLine line = make_line(cases_[attempt.index], attempt.result, ceilings_);
    if (!line.is_ceiling) print(line_text(line, has_color_));
    progress_.update({.done = position.done,
                      .total = position.total,
                      .failed = failed_ += line.is_failed(),
                      .what = line.id});
  }

  void print(const std::string& text) {
    if (line_.is_quiet) return;
    progress_.clear();
    std::cout << text << std::flush;
  }

  const CommandLine& line_;
  const CaseList& cases_;
  const BatchReport& probed_;
  bool has_color_;
  ResultLog log_;
  Progress progress_;
  Ceilings ceilings_;
  std::string troubled_;         // A line for each ceiling that was not measured.
  std::vector<PerfLine> lines_;  // The lines of the ceilings come first.
  size_t failed_ = 0;
  bool is_interrupted_ = false;
};

PerfHeader make_header(const CommandLine& line, const CacheSize& cache) {
  const SessionOptions& session = line.run.session;
  return {.plugin = line.plugin,
          .seed = session.seed,
          .options = session.setup.perf,
          .cache_source = cache.source,
          .backend_options = session.setup.options,
          .environment = line.environment,
          .has_color = has_color(line)};
}

// Takes the size from the command line, or else from what is known about the device.
CacheSize settle_cache(CommandLine& line, const nlohmann::json& hello) {
  uint64_t& bytes = line.run.session.setup.perf.cache_bytes;
  if (bytes != 0) return {bytes, "--cache-bytes"};
  const CacheSize found = cache_size_of(hello.at("targets").at(hello.value("target", size_t{0})));
  bytes = found.bytes;
  return found;
}

void write_document(const CommandLine& line, const std::string& folder,
                    const nlohmann::json& document) {
  const std::string text = json_text(document, 2) + "\n";
  write_file((std::filesystem::path(folder) / "perf.json").string(), text);
  if (!line.json_file.empty()) write_file(line.json_file, text);
}

// Returns the path of the log, because each run has its own.
std::string log_path(const std::string& folder, int run) {
  const std::string name = run == 1 ? "results.jsonl" : "results." + std::to_string(run) + ".jsonl";
  return (std::filesystem::path(folder) / name).string();
}

// A call that falls back is not timed; it has the status Missing or NotSupported.
std::string served_text(const PerfSummary& summary) {
  const auto timed = std::ranges::count_if(
      summary.lines, [](const PerfLine& line) { return !line.is_ceiling && line.is_measured(); });
  const auto untimed = std::ranges::count_if(
      summary.lines, [](const PerfLine& line) { return !line.is_ceiling && !line.is_measured(); });
  return "\nserved: " + std::to_string(timed) + " calls timed, all on kernels of the backend; " +
         std::to_string(untimed) + " not timed; fallbacks are never timed\n";
}

int list_ids(const CaseList& cases, const PerfSelection& selection) {
  for (const size_t index : selection.ceilings) std::cout << cases[index].id << "\n";
  for (const size_t index : selection.calls) std::cout << cases[index].id << "\n";
  return kExitOk;
}

// Reads the file. An error names the option for the file.
Baseline read_baseline(const std::string& path) {
  try {
    return Baseline::read(path);
  } catch (const UsageError& e) {
    throw UsageError(std::string("--baseline: ") + e.what());
  }
}

}  // namespace

int perf_verb(const CommandLine& given) {
  CommandLine line = given;
  // The options do not change the list of cases; a worker makes its own list.
  const CaseList cases = perf_cases({});
  const PerfSelection selection = select(cases, line.selection);
  if (line.wants_list) return list_ids(cases, selection);
  std::optional<Baseline> baseline;
  if (!line.baseline.empty()) baseline = read_baseline(line.baseline);

  line.run.session.interrupt_fd = interrupt_descriptor();
  line.run.session.setup.keeps_thread_caches = true;
  line.run.retries = 0;
  BatchReport probed;
  if (!probe(line, cases, probed)) {
    return probed.is_interrupted ? kExitInterrupted : kExitNotLoaded;
  }
  probed.hello["sha256"] = sha256_of_file(probed.hello.at("plugin").value("path", ""));
  const CacheSize cache = settle_cache(line, probed.hello);
  const PerfHeader header = make_header(line, cache);
  nlohmann::json document = perf_document(header, probed.hello);
  if (baseline) baseline->require_comparable(document);

  const ResultFolder result_folder = make_result_folder(line.out);
  const std::string& folder = result_folder.path;
  if (!line.is_quiet) std::cout << perf_head(header, probed.hello) << std::flush;
  std::vector<PerfSummary> runs;
  bool is_interrupted = false;
  for (int run = 1; run <= line.perf_runs && !is_interrupted; ++run) {
    if (line.perf_runs > 1 && !line.is_quiet) {
      std::cout << "run " << run << " of " << line.perf_runs << "\n" << std::flush;
    }
    PerfRun measured(line, cases, probed, log_path(folder, run));
    runs.push_back(measured.run(selection));
    is_interrupted = measured.is_interrupted();
  }

  const PerfSummary summary = middle_of(runs);
  Comparison comparison;
  if (baseline) comparison = baseline->compare(summary, document, line.max_regress);
  add_results(summary, document);
  add_comparison(comparison, document);
  if (line.perf_runs > 1) {
    const Stability stability = stability_of(runs);
    add_stability(stability, document);
    std::cout << stability_text(stability);
  }
  const PerfVerdict verdict = perf_verdict(summary, comparison, is_interrupted);
  document["summary"]["verdict"] = verdict.text;
  write_document(line, folder, document);
  if (!line.is_quiet) std::cout << served_text(summary);
  std::cout << summary_text(summary, comparison, verdict.text + "   " + folder + "/perf.json")
            << std::flush;
  return verdict.exit_code;
}

}  // namespace bp::conformance
