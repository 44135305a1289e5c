// The command line of bp-conformance and its mirror in the environment.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "conformance/cases/selection.hpp"
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
  kExplain,
  kSelftest,
  kNew
};

struct CommandLine {
  Verb verb = Verb::kRun;
  std::string plugin;  // "" where the verb does without; of new, the name.
  std::string tag;     // Of explain.

  SelectionQuery selection;
  bool is_tier_given = false;
  RunOptions run;
  std::string isolate = "batch";

  std::string waivers, write_waivers;
  std::string out, resume, format = "pretty", junit, html, markdown, json_file, color = "auto";
  bool is_verbose = false, is_quiet = false, explains_fallbacks = false;
  int list_slowest = 0;
  double budget_seconds = 0;
  std::string shrunk;         // Of run: a file that shrink wrote.
  std::string case_id;        // Of shrink.
  size_t steps = 200;         // Of shrink.
  std::string baseline;       // Of perf.
  double max_regress = 0.05;  // Of perf.
  int perf_runs = 1;
  bool wants_list = false;                                  // Of perf: name the cases alone.
  std::string folder, other_folder;                         // Of report and repro; of diff.
  bool is_strict = false;                                   // Of diff.
  std::string by = "layout";                                // Of coverage.
  bool wants_probes = false;                                // Of info.
  std::string mutants, mutant_filter, mutant_part;          // Of selftest.
  int seeds = 1;                                            // Of selftest.
  bool as_tree = false, as_count = false, as_json = false;  // Of list and info.

  std::vector<std::string> environment;  // The variables that were read, "NAME=value".
  std::vector<std::string> words;        // The command line as it was given.
};

// What is left to do is nothing: the help was asked for, or the command line is wrong.
struct CommandLineEnd {
  int exit_code;
  std::string text;  // To standard output if the code is 0, else to standard error.
};

// Throws CommandLineEnd.
CommandLine parse_command_line(std::vector<std::string> words);

// "run, list and info": every verb, for messages.
std::string verb_names();

// The names of all variables of this process that begin with `prefix`.
std::vector<std::string> environment_names(const std::string& prefix);

}  // namespace bp::conformance
