// Summarizes a run: counts, failures grouped by cause, the verdict and the exit code.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/cases/selection.hpp"
#include "conformance/report/waivers.hpp"
#include "conformance/runner/supervisor.hpp"

namespace bp::conformance {

// Exit codes; if several apply, the first of this list wins.
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

// The settings of a run, for its reports.
struct RunHeader {
  std::string plugin;                    // The plugin as the user named it.
  std::vector<std::string> repro_flags;  // The flags that change results and do not have their
                                         // default value.
  std::vector<std::string> environment;  // The variables that the run used, in the form
                                         // "BACKPLANE_CONFORMANCE_SEED=7".
  std::vector<std::string> command_line;
  uint64_t seed = 0x5eed;
  Tier tier = Tier::kQuick;
  bool is_whole_tier = true;     // No flag narrows the selection.
  double budget_seconds = 0;     // The time budget; 0 if there is none.
  std::string waivers;           // The path of the waivers file that was read, or "".
  std::string selection_sha256;  // The hash of the ids of the selected cases, in the order of the
                                 // run.
  std::string folder;            // The folder of the result files.
  SessionOptions session;        // The options that workers received.
};

// A case with its result after waivers. `which` is NULL for loading and unloading.
struct Judged {
  const Case* which = nullptr;
  std::string id;
  Result result;
  Attempt attempt;
  int attempt_count = 0;
  bool is_confirmed = false;
};

// Failures that have the same signature.
struct FailureGroup {
  std::string tag;
  std::string label;  // The pattern of the group's ids: "op.matmul.f32.*".
  Outcome outcome = Outcome::kFail;
  std::string cause;
  std::vector<size_t> members;  // Indices into Summary::judged; the page shows the first one.

  std::string title() const;  // Returns "KERNEL-9 tail", for the list of fixes.
};

struct GroupCount {
  size_t right = 0, total = 0;
};

struct Summary {
  std::vector<Judged> judged;
  std::map<Outcome, size_t> outcomes;
  std::map<std::string, GroupCount> groups;
  std::map<std::string, GroupCount> tags;
  std::vector<FailureGroup> failures;  // The groups of failures, the largest first.
  size_t passed = 0, failed = 0, skipped = 0;
  std::string verdict;
  ExitCode exit_code = kExitOk;

  size_t count(std::initializer_list<Outcome> which) const;
};

Summary summarize(const RunHeader& header, const CaseList& cases, const RunReport& report,
                  const Waivers& waivers);

// Returns the line that repeats the failure.
std::string repro_line(const RunHeader& header, const Judged& judged);

}  // namespace bp::conformance
