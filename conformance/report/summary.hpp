// What a run comes to: counts, failures grouped by cause, the verdict and the exit code.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/cases/selection.hpp"
#include "conformance/report/waivers.hpp"
#include "conformance/runner/supervisor.hpp"

namespace bp::conformance {

// Exit codes; where several apply, the first of this list wins.
//
// kExitHarness also says that standard output or a file could not be written.
//
// A failure of cause "declaration" is a false statement about results that are right.
enum ExitCode {
  kExitInterrupted = 130,
  kExitUsage = 2,
  kExitNotLoaded = 3,
  kExitNothingRan = 5,
  kExitHarness = 4,
  kExitFailures = 1,
  kExitDeclaration = 6,
  kExitTooSlow = 7,
  kExitOk = 0,
};

// What a run was asked for, for its reports.
struct RunHeader {
  std::string plugin;                    // As it was given.
  std::vector<std::string> repro_flags;  // Those that change results and are not at their default.
  std::vector<std::string> environment;  // "BACKPLANE_CONFORMANCE_SEED=7", as echoed.
  std::vector<std::string> command_line;
  uint64_t seed = 0x5eed;
  Tier tier = Tier::kQuick;
  bool is_whole_tier = true;     // Nothing narrows the selection.
  double budget_seconds = 0;     // 0: none.
  std::string waivers;           // The file that was read, or "".
  std::string selection_sha256;  // Of the ids of the selected cases, in the order of the run.
  std::string folder;            // Where the result files lie.
  SessionOptions session;        // What workers were told.
};

// A case with its result under the waivers. `which` is NULL for loading and unloading.
struct Judged {
  const Case* which = nullptr;
  std::string id;
  Result result;
  Attempt attempt;
  int attempt_count = 0;
  bool is_confirmed = false;
};

// Failures with one signature.
struct FailureGroup {
  std::string tag;
  std::string label;  // "op.matmul.f32.*"
  Outcome outcome = Outcome::kFail;
  std::string cause;
  std::vector<size_t> members;  // Into Summary::judged; the first is shown.

  std::string title() const;  // "KERNEL-9 tail", for the list of fixes.
};

struct GroupCount {
  size_t right = 0, total = 0;
};

struct Summary {
  std::vector<Judged> judged;
  std::map<Outcome, size_t> outcomes;
  std::map<std::string, GroupCount> groups;
  std::map<std::string, GroupCount> tags;
  std::vector<FailureGroup> failures;  // The largest first.
  size_t passed = 0, failed = 0, skipped = 0;
  std::string verdict;
  ExitCode exit_code = kExitOk;

  size_t count(std::initializer_list<Outcome> which) const;
};

Summary summarize(const RunHeader& header, const CaseList& cases, const RunReport& report,
                  const Waivers& waivers);

// One line that repeats the failure.
std::string repro_line(const RunHeader& header, const Judged& judged);

}  // namespace bp::conformance
