// The verb repro: runs one saved failure again, and reports whether it repeats.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/recordings/recording_cases.hpp"
#include "conformance/report/file_hash.hpp"
#include "conformance/report/saved_failure.hpp"
#include "conformance/shrink/changed_case.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

namespace fs = std::filesystem;

// Returns the one saved failure that `given` holds.
std::string find_failure(const std::string& given) {
  const std::vector<std::string> found = saved_failures_in(given);
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    throw UsageError(given +
                     ": holds no saved failure; a run writes them to <its folder>/repro/<case id>");
  }
  for (const std::string& folder : found) std::cout << folder << "\n";
  std::cout.flush();
  throw UsageError(given + ": holds " + std::to_string(found.size()) +
                   " saved failures, which standard output lists; name one of them");
}

// Returns whether there is a plugin to load. If the file has changed since, it runs all the same,
// with a warning.
bool check_plugin(const SavedFailure& saved) {
  const std::string& path = saved.plugin_path;
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) {
    complain("the plugin of the saved failure, " + (path.empty() ? "unknown" : path) +
             ", is not there any more");
    return false;
  }
  const std::string now = sha256_of_file(path);
  if (now != saved.plugin_sha256) {
    complain("warning: " + path + " has changed since the failure was saved: its sha256 was " +
             saved.plugin_sha256 + " and is " + now);
  }
  return true;
}

CaseList list_of(const SavedFailure& saved) {
  const RecordingSource& recording = saved.session.setup.recording;
  if (!recording.path.empty()) return recording_cases(recording);
  std::vector<std::string> ids = saved.before;
  ids.push_back(saved.id);
  CaseList named = CaseList::of(ids);
  if (saved.change.empty()) return named;
  std::vector<Case> cases = named.cases();
  const nlohmann::json change = parse_json(saved.change, saved.id + ": change");
  std::ranges::replace_if(
      cases, [&](const Case& each) { return each.id == saved.id; },
      make_changed_case(named, change));
  return CaseList(std::move(cases));
}

std::vector<size_t> batch_of(const SavedFailure& saved, const CaseList& cases) {
  if (saved.id == "load" || saved.id == "unload") {
    throw UsageError(
        "the failure happened during the " + saved.id +
        " of the plugin, not in a case, so there is no case to repeat; start the whole run again");
  }
  std::vector<std::string> ids = saved.before;
  ids.push_back(saved.id);
  std::vector<size_t> batch;
  for (const std::string& id : ids) {
    const Case* which = cases.find(id);
    if (which == nullptr) throw NothingMatched(id + ": the suite has no case of this id any more");
    batch.push_back(static_cast<size_t>(which - cases.cases().data()));
  }
  return batch;
}

std::string text_of(const Result& result) {
  std::string text = outcome_name(result.outcome);
  if (!result.cause.empty()) text += " (" + result.cause + ")";
  if (result.message.empty()) return text;
  return text + ": " + clean_text(result.message, LineBreaks::kIndent);
}

// Returns the exit code for the second result of the failure, and prints what has changed.
ExitCode judge(const Result& then, const Result& now) {
  if (now.outcome == Outcome::kHarnessError) {
    std::cout << "the suite itself failed, so nothing is known of the failure\n";
    return kExitHarness;
  }
  const bool was_failure = count_of(then.outcome) == Count::kFailed;
  const bool is_failure = count_of(now.outcome) == Count::kFailed;
  if (ended_alike(then, now)) {
    std::cout << (was_failure ? "repeats: the same cause\n" : "repeats: it passes again\n");
    return kExitFailures;
  }
  if (is_failure) {
    std::cout << "fails, but with another cause\n";
    return kExitFailures;
  }
  if (count_of(now.outcome) == Count::kSkipped) {
    std::cout << "did not run natively now\n";
    return kExitNothingRan;
  }
  std::cout << "passes now\n";
  return kExitOk;
}

}  // namespace

int repro_verb(const CommandLine& line) {
  const SavedFailure saved = SavedFailure::read(find_failure(line.folder));
  if (!check_plugin(saved)) return kExitNotLoaded;
  const CaseList cases = list_of(saved);
  const std::vector<size_t> batch = batch_of(saved, cases);
  SessionOptions session = saved.session;
  session.interrupt_fd = interrupt_descriptor();

  std::optional<Attempt> last;
  const BatchReport report = run_batch(session, cases, batch, 1, [&](const Attempt& attempt) {
    last = attempt;
    return true;
  });
  if (report.is_interrupted) return kExitInterrupted;
  if (report.load_failure) {
    complain(saved.plugin_path + ": " + report.load_failure->message);
    return kExitNotLoaded;
  }
  if (!last) throw std::logic_error("a worker ended without an attempt");
  std::cout << saved.id << "\n  then  " << text_of(saved.seen) << "\n  now   ";
  if (last->index != batch.back()) {
    std::cout << "not reached: " << cases[last->index].id
              << " before it ended the worker: " << text_of(last->result)
              << "\nfails, but with another cause\n";
    return kExitFailures;
  }
  std::cout << text_of(last->result) << "\n";
  if (!last->output.empty()) {
    std::cout << "  it printed\n    "
              << clean_text(last->output, LineBreaks::kIndent, last->output.size()) << "\n";
  }
  const ExitCode code = judge(saved.seen, last->result);
  std::cout.flush();
  return code;
}

}  // namespace bp::conformance
