// The verb run: selects, runs, and writes the page and the files.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "conformance/cli/progress.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/recordings/recording_cases.hpp"
#include "conformance/report/file_hash.hpp"
#include "conformance/report/files.hpp"
#include "conformance/report/page.hpp"
#include "conformance/report/stored.hpp"
#include "conformance/shrink/changed_case.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/files/sha256.hpp"

namespace bp::conformance {
namespace {

namespace fs = std::filesystem;

// Returns the waivers that lie beside a plugin: its own file, or the file of the folder; "" if
// there is none.
std::string default_waivers(const std::string& plugin_path) {
  const fs::path path(plugin_path);
  std::error_code error;
  for (const fs::path& candidate : {path.parent_path() / (path.stem().string() + ".waivers.yaml"),
                                    path.parent_path() / "waivers.yaml"}) {
    if (fs::exists(candidate, error)) return candidate.string();
  }
  return "";
}

std::string plain_line(const CaseList& cases, const Attempt& attempt) {
  const std::string id = attempt.index < cases.size() ? cases[attempt.index].id
                         : attempt.index == kLoad     ? "load"
                                                      : "unload";
  char head[64];
  std::snprintf(head, sizeof(head), "%-14s %9s ms  ", outcome_name(attempt.result.outcome),
                fixed_text(attempt.wall_ms, 1).c_str());
  const std::string& message = attempt.result.message;
  return head + id + (message.empty() ? "" : ": " + message.substr(0, message.find('\n'))) + "\n";
}

// Prints and logs while the run goes on.
class Watcher {
 public:
  Watcher(const CommandLine& line, const RunHeader& header, const CaseList& cases)
      : line_(line),
        cases_(cases),
        seed_(header.seed),
        log_((fs::path(header.folder) / "results.jsonl").string(), header.seed, cases),
        progress_(line.is_quiet, line.format == "pretty") {}

  void see(const Attempt& attempt, const Position& position) {
    log_.add(attempt);
    const bool is_failure = count_of(attempt.result.outcome) == Count::kFailed;
    if (!position.is_confirming) failed_ += is_failure;
    if (line_.format == "jsonl") {
      std::cout << json_text(attempt_json(cases_, attempt, seed_)) << "\n";
      if (!std::cout) throw OutputError("standard output could not be written");
    } else if (line_.is_verbose || (line_.format == "plain" && !line_.is_quiet)) {
      progress_.clear();
      // If the page or TAP goes to standard output, nothing else goes there.
      (line_.format == "tap" ? std::cerr : std::cout) << plain_line(cases_, attempt);
    }
    progress_.update({.is_confirming = position.is_confirming,
                      .done = position.done,
                      .total = position.total,
                      .failed = failed_,
                      .what = attempt.index < cases_.size() ? cases_[attempt.index].id : ""});
  }

  ResultLog& log() { return log_; }
  Progress& progress() { return progress_; }

 private:
  const CommandLine& line_;
  const CaseList& cases_;
  uint64_t seed_;
  ResultLog log_;
  Progress progress_;
  size_t failed_ = 0;
};

RunHeader make_header(const CommandLine& line) {
  const SessionOptions& session = line.run.session;
  const SelectionQuery& s = line.selection;
  RunHeader header;
  header.plugin = line.plugin;
  header.seed = session.seed;
  header.session = session;
  header.tier = s.tier;
  header.environment = line.environment;
  header.command_line = line.words;
  header.budget_seconds = line.budget_seconds;
  header.is_whole_tier = s.filters.empty() && s.regexes.empty() && s.ids.empty() &&
                         s.caselists.empty() && s.excludes.empty() && s.dtypes.empty() &&
                         s.shard_count == 1 && session.setup.recording.path.empty();
  header.repro_flags = repro_flags(line);
  return header;
}

// Reads the case from a file that shrink wrote.
CaseList read_shrunk(const std::string& path) {
  try {
    const nlohmann::json described = read_json_file(path);
    const CaseList base = CaseList::of({JsonObject(described, path).text("case")});
    return CaseList({make_changed_case(base, described)});
  } catch (const UsageError& e) {
    throw UsageError("--shrunk: " + std::string(e.what()) +
                     "; allowed is a file that shrink wrote");
  }
}

SharedCases cases_to_select_from(const CommandLine& line) {
  const auto shared = [](CaseList cases) {
    return std::make_shared<const CaseList>(std::move(cases));
  };
  if (!line.shrunk.empty()) return shared(read_shrunk(line.shrunk));
  const RecordingSource& recording = line.run.session.setup.recording;
  if (!recording.path.empty()) return shared(recording_cases(recording));
  return cases_for(line.selection);
}

// An entry may name any case of the suite. The whole suite is made only if an entry names none of
// `cases`.
Waivers read_waivers(const std::string& path, const CaseList& cases) {
  try {
    return Waivers::read(path, cases);
  } catch (const UsageError&) {
    return Waivers::read(path, CaseList::whole_suite());
  }
}

void write_waiver_drafts(const std::string& path, const Summary& summary) {
  std::vector<std::pair<std::string, Result>> failures;
  for (const Judged& judged : summary.judged) {
    if (judged.which != nullptr && count_of(judged.result.outcome) == Count::kFailed) {
      failures.emplace_back(judged.id, judged.result);
    }
  }
  write_file(path, draft_waivers(failures));
}

void write_outputs(const CommandLine& line, const RunHeader& header, const RunReport& report,
                   const Summary& summary, Outputs& outputs) {
  write_result_files(header, report, summary, outputs);
  write_documents(line, header, report, summary, outputs);
  if (!line.json_file.empty()) {
    outputs.attempt([&] {
      write_file(line.json_file, json_text(summary_json(header, report, summary), 2) + "\n");
    });
  }
  if (!line.write_waivers.empty()) {
    outputs.attempt([&] { write_waiver_drafts(line.write_waivers, summary); });
  }

  if (line.format == "tap") std::cout << tap_text(summary);
  if (line.format == "pretty" || line.format == "plain") {
    const PageOptions options{.has_color = has_color(line),
                              .is_verbose = line.is_verbose,
                              .is_quiet = line.is_quiet,
                              .slowest = line.list_slowest,
                              .explains_fallbacks = line.explains_fallbacks};
    std::cout << verdict_page(header, report, summary, options);
  }
  std::cout.flush();
}

std::string sha256_of_selection(const CaseList& cases, const std::vector<size_t>& selection) {
  std::string ids;
  for (const size_t index : selection) ids += cases[index].id + "\n";
  return sha256(ids);
}

// Returns the results of an interrupted run that need not run again. A failure must have been
// confirmed; a skipped case runs now.
std::vector<Final> settled_results(const StoredRun& stored, const CaseList& cases) {
  std::vector<Final> known;
  for (const StoredCase& old : stored.cases()) {
    const Case* which = cases.find(old.id);
    const Outcome outcome = old.attempt.result.outcome;
    const bool is_settled = outcome != Outcome::kSkip && outcome != Outcome::kHarnessError &&
                            (count_of(outcome) != Count::kFailed || old.has_agreed) &&
                            old.result.outcome != Outcome::kFlake && old.result.cause != "order";
    if (which == nullptr || !is_settled) continue;
    Final& final = known.emplace_back();
    final.index = static_cast<size_t>(which - cases.cases().data());
    final.attempt = old.attempt;
    final.attempt.index = final.index;
    final.attempt_count = old.attempt_count;
    final.is_confirmed = old.has_agreed;
  }
  return known;
}

// Opens the folder of the run: a new one, or that of the run to continue. It writes the folder to
// `line` and `header`.
ResultFolder open_folder(CommandLine& line, const CaseList& cases, RunHeader& header,
                         const nlohmann::json& hello) {
  if (line.resume.empty()) {
    ResultFolder folder = make_result_folder(line.out);
    header.folder = folder.path;
    return folder;
  }
  header.folder = line.resume;
  // The lock comes first, because another process may still write results to the folder.
  ResultFolder folder{line.resume, FolderLock(line.resume, "--resume " + line.resume)};
  const StoredRun stored = StoredRun::read(line.resume);
  continue_result_folder(line.resume, stored, header, hello);
  line.run.known = settled_results(stored, cases);
  return folder;
}

}  // namespace

std::vector<std::string> repro_flags(const CommandLine& line) {
  const WorkerSetup& setup = line.run.session.setup;
  std::vector<std::string> flags;
  for (const auto& [key, value] : setup.options) {
    flags.emplace_back("--option");
    flags.emplace_back(key).append("=").append(value);
  }
  const auto add = [&](const char* flag, const std::string& value, const std::string& usual) {
    if (value != usual) flags.insert(flags.end(), {flag, value});
  };
  add("--layers", setup.layers, "");
  add("--layer-options", setup.layer_options, "");
  add("--transport", setup.transport, "");
  const CaseOptions usual;
  const CaseOptions& cases = setup.case_options;
  add("--device", setup.device, "");
  add("--canary", std::to_string(cases.canary_bytes), std::to_string(usual.canary_bytes));
  add("--poison", cases.poison, usual.poison);
  if (setup.allows_decompositions) flags.emplace_back("--allow-decompositions");
  add("--shrunk", line.shrunk, "");
  if (setup.recording.seeds_weights) flags.emplace_back("--seed-weights");
  if (setup.recording.is_partial) flags.emplace_back("--partial");
  return flags;
}

int run_verb(const CommandLine& given) {
  CommandLine line = given;
  const SharedCases made = cases_to_select_from(line);
  const CaseList& cases = *made;
  const std::vector<size_t> selection = select_cases(cases, line.selection);
  Waivers waivers;
  if (!line.waivers.empty()) waivers = read_waivers(line.waivers, cases);

  line.run.session.interrupt_fd = interrupt_descriptor();
  BatchReport probed;
  if (!probe(line, cases, probed)) {
    return probed.is_interrupted ? kExitInterrupted : kExitNotLoaded;
  }
  const std::string path = probed.hello.at("plugin").value("path", "");
  probed.hello["sha256"] = sha256_of_file(path);
  RunHeader header = make_header(line);
  header.waivers = line.waivers;
  // Waivers apply only to cases of the suite.
  if (line.waivers.empty() && line.verb != Verb::kReplay) {
    header.waivers = default_waivers(path);
    if (!header.waivers.empty()) waivers = read_waivers(header.waivers, cases);
  }
  header.selection_sha256 = sha256_of_selection(cases, selection);
  const ResultFolder folder = open_folder(line, cases, header, probed.hello);
  write_info(header, probed.hello);

  line.run.is_expected = [&](const Case& which, const Result& result) {
    return waivers.excuses(which, result);
  };
  Watcher watcher(line, header, cases);
  Supervisor supervisor(line.run, cases, [&](const Attempt& attempt, const Position& position) {
    watcher.see(attempt, position);
  });
  const RunReport report = supervisor.run(selection, probed);
  watcher.progress().clear();
  const Summary summary = summarize(header, cases, report, waivers);
  Outputs outputs;
  outputs.attempt([&] {
    if (!report.observer_failure.empty()) throw OutputError(report.observer_failure);
    watcher.log().add_finals(summary);
    watcher.log().finish();
  });
  write_outputs(line, header, report, summary, outputs);
  return with_outputs_checked(summary.exit_code, outputs);
}

}  // namespace bp::conformance
