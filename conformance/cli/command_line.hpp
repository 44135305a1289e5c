// The command line of bp-conformance and its mirror in the environment.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "conformance/cases/selection.hpp"
#include "conformance/dist/supervisor.hpp"
#include "conformance/runner/supervisor.hpp"

namespace bp::conformance {

enum class Verb {
  kRun,
  kList,
  kInfo,
  kCoverage,
  kPerf,
  kShrink,
  kRepro,
  kReplay,
  kDiff,
  kReport,
  kPackage,
  kVerify,
  kStress,
  kDist,
  kExplain,
  kSelftest,
  kNew
};

struct CommandLine {
  Verb verb = Verb::kRun;
  std::string plugin;  // The plugin; the name of the backend for new; "" for verbs without a
                       // plugin.
  std::string tag;     // The word for explain.

  SelectionQuery selection;
  bool is_tier_given = false;
  RunOptions run;
  std::string isolate = "batch";

  std::string waivers, write_waivers;
  std::string out, resume, format = "pretty", junit, html, markdown, json_file, color = "auto";
  bool is_verbose = false, is_quiet = false, explains_fallbacks = false;
  int list_slowest = 0;
  double budget_seconds = 0;
  std::string shrunk;         // The file that shrink wrote, for run.
  std::string case_id;        // The case for shrink.
  size_t steps = 200;         // The step limit of shrink.
  std::string baseline;       // The baseline of perf.
  double max_regress = 0.05;  // The limit of perf for regressions.
  int perf_runs = 1;
  bool wants_list = false;                          // Makes perf only list its cases.
  std::string folder, other_folder;                 // The folder of report and repro; both
                                                    // folders of diff.
  std::vector<std::string> compared;                // The folders that report compares.
  std::vector<std::string> speeds;                  // The files of perf for report.
  std::vector<std::string> statements;              // Flags of package.
  std::string sign_key;                             // A flag of package.
  std::string allowed_signers, signer;              // Flags of verify.
  size_t samples = 20;                              // A flag of verify.
  uint64_t sample_seed = 0;                         // A flag of verify; 0: draw one.
  double stress_hours = 1;                          // A flag of stress.
  std::string temperature;                          // A flag of stress.
  dist::Options dist;                               // The flags of dist.
  bool is_strict = false;                           // A flag of diff.
  std::string by = "layout";                        // A flag of coverage.
  bool is_async = false, is_compiler = false;       // Flags of new.
  bool wants_probes = false;                        // A flag of info.
  std::string mutants, mutant_filter, mutant_part;  // Flags of selftest.
  int seeds = 1;                                    // A flag of selftest.
  size_t sample = 0;                // The most cases that selftest runs on a benign mutant, and
                                    // coverage for an op and dtype; 0: all.
  size_t random_count = 0;          // How many mutants selftest draws.
  std::vector<std::string> faults;  // The faults that selftest gives to mutants.
  std::string family;               // The family of the mutants that selftest draws.
  bool as_tree = false, as_count = false, as_json = false;  // Flags of list and info.

  std::vector<std::string> environment;  // The variables that were read, in the form "NAME=value".
  std::vector<std::string> words;        // The command line as the user wrote it.
};

// Thrown if no verb has to run: the user asked for help, or the command line is wrong.
struct CommandLineEnd {
  int exit_code;
  std::string text;  // The text goes to standard output if the code is 0, else to standard error.
};

// Parses the words and the environment. Throws CommandLineEnd if no verb has to run.
CommandLine parse_command_line(std::vector<std::string> words);

// Returns every verb for messages: "run, list and info".
std::string verb_names();

// Returns the names of all variables of this process that begin with `prefix`.
std::vector<std::string> environment_names(const std::string& prefix);

}  // namespace bp::conformance
