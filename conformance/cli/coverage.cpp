// The verb coverage: runs the op cases, and prints how the calls of each op are served.
#include "conformance/report/coverage.hpp"

#include <iostream>
#include <map>

#include "conformance/cli/progress.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/report/files.hpp"

namespace bp::conformance {
namespace {

constexpr const char* kLegend =
    "a number: so many cases are right, on kernels of the backend; F through a fallback; W wrong;\n"
    "C crash or hang; M missing; U works but is unclaimed; - not claimed; ? not run; . no case;\n"
    "W2/14: the worst is wrong, in 2 of 14\n";

// Keeps the first `count` cases of each op and dtype.
void keep_first(size_t count, const CaseList& cases, std::vector<size_t>& selection) {
  std::map<std::pair<uint32_t, std::string>, size_t> seen;
  std::erase_if(selection, [&](size_t i) {
    return seen[{cases[i].op, cases[i].dtype}]++ >= count;
  });
}

std::vector<size_t> select_op_cases(const CommandLine& line, const CaseList& cases) {
  std::vector<size_t> selection = select_cases(cases, line.selection);
  std::erase_if(selection, [&](size_t i) { return cases[i].op_case == nullptr; });
  if (selection.empty()) throw NothingMatched("no selected case is a call of an op");
  if (line.sample > 0) keep_first(line.sample, cases, selection);
  return selection;
}

void write_json(const CommandLine& line, const BatchReport& probed, const Coverage& coverage,
                bool is_complete) {
  if (line.json_file.empty()) return;
  nlohmann::json file = coverage.json();
  file["suite"] = kSuiteVersion;
  file["plugin"] = probed.hello.at("plugin");
  file["tier"] = tier_name(line.selection.tier);
  file["is_complete"] = is_complete;  // Whether all selected cases have run.
  write_file(line.json_file, json_text(file, 1) + "\n");
}

}  // namespace

int coverage_verb(const CommandLine& given) {
  CommandLine line = given;
  const SharedCases made = cases_for(line.selection);
  const CaseList& cases = *made;
  const std::vector<size_t> selection = select_op_cases(line, cases);
  line.run.session.interrupt_fd = interrupt_descriptor();
  line.run.retries = 0;  // The table needs no confirmation of failures; run has it.
  BatchReport probed;
  if (!probe(line, cases, probed)) {
    return probed.is_interrupted ? kExitInterrupted : kExitNotLoaded;
  }

  Progress progress(line.is_quiet, true);
  size_t failed = 0;
  Supervisor supervisor(line.run, cases, [&](const Attempt& attempt, const Position& position) {
    failed += count_of(attempt.result.outcome) == Count::kFailed;
    progress.update({.done = position.done,
                     .total = position.total,
                     .failed = failed,
                     .what = attempt.index < cases.size() ? cases[attempt.index].id : ""});
  });
  const RunReport report = supervisor.run(selection, probed);
  progress.clear();

  const RunHeader header{.plugin = line.plugin, .tier = line.selection.tier};
  const Summary summary = summarize(header, cases, report, Waivers());
  const Coverage coverage(summary);
  write_json(line, probed, coverage, !report.is_interrupted);
  if (!line.is_quiet) std::cout << coverage.text(line.by == "rank") << "\n" << kLegend;
  std::cout << coverage.totals_text();
  std::cout.flush();
  return summary.exit_code;
}

}  // namespace bp::conformance
