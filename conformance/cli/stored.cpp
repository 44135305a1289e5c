// The verbs on stored results: diff and report. They run no case and need no backend.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "conformance/cli/verbs.hpp"
#include "conformance/report/comparison.hpp"
#include "conformance/report/diff.hpp"
#include "conformance/report/documents.hpp"
#include "conformance/report/files.hpp"
#include "conformance/report/page.hpp"

namespace bp::conformance {
bool has_color(const CommandLine& line) {
  return line.color == "always" || (line.color == "auto" && isatty(STDOUT_FILENO) != 0);
}

void write_documents(const CommandLine& line, const RunHeader& header, const RunReport& report,
                     const Summary& summary, Outputs& outputs, const Speed* speed) {
  const auto write = [&](const std::string& path, const auto& text) {
    if (!path.empty()) outputs.attempt([&] { write_file(path, text()); });
  };
  write(line.junit, [&] { return junit_xml(report, summary); });
  write(line.html, [&] { return html_page(header, report, summary, speed); });
  write(line.markdown, [&] { return markdown_page(header, report, summary); });
}

int with_outputs_checked(int exit_code, const Outputs& outputs) {
  if (outputs.problem().empty()) return exit_code;
  complain(outputs.problem());
  return exit_code == kExitInterrupted ? exit_code : kExitHarness;
}

int diff_verb(const CommandLine& line) {
  const StoredRun before = StoredRun::read(line.folder);
  const StoredRun after = StoredRun::read(line.other_folder);
  const RunDiff diff = diff_runs(before, after);
  std::cout << diff_text(diff, before, after, line.is_verbose);
  std::cout.flush();
  const bool is_bad = line.is_strict ? !diff.is_empty() : !diff.new_failures.empty();
  return is_bad ? kExitFailures : kExitOk;
}

namespace {

// Returns the speeds for run number `index`: those that the command line names, else those in the
// folder of the run, if it has any.
Speed speed_for(const CommandLine& line, size_t index, const std::string& folder) {
  if (index < line.speeds.size()) {
    return line.speeds[index] == "-" ? Speed() : read_speed(line.speeds[index]);
  }
  std::error_code error;
  const std::string beside = folder + "/perf.json";
  return std::filesystem::exists(beside, error) ? read_speed(beside) : Speed();
}

// Returns names that tell the runs apart: of their folders, or the folders as they were given if
// two have the same name.
std::vector<std::string> names_of(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    names.push_back(path.filename());
  }
  std::vector<std::string> sorted = names;
  std::ranges::sort(sorted);
  return std::ranges::adjacent_find(sorted) == sorted.end() ? names : folders;
}

int compare_runs(const CommandLine& line) {
  const std::vector<std::string> names = names_of(line.compared);
  std::vector<RestoredRun> runs;
  runs.reserve(line.compared.size());
  std::vector<ComparedRun> compared;
  for (size_t i = 0; i < line.compared.size(); ++i) {
    const std::string& folder = line.compared[i];
    runs.push_back(restore(StoredRun::read(folder)));
    compared.push_back({names[i], &runs.back(), speed_for(line, i, folder)});
  }
  const std::string file = line.html.empty() ? "comparison.html" : line.html;
  Outputs outputs;
  outputs.attempt([&] { write_file(file, comparison_page(compared)); });
  std::cout << comparison_text(compared);
  if (outputs.problem().empty()) std::cout << "page: " << file << "\n";
  std::cout.flush();
  return with_outputs_checked(kExitOk, outputs);
}

}  // namespace

// If no document is named, the documents of the folder are written again.
int report_verb(const CommandLine& given) {
  if (!given.compared.empty()) return compare_runs(given);
  CommandLine line = given;
  const RestoredRun run = restore(StoredRun::read(line.folder));
  if (line.junit.empty() && line.html.empty() && line.markdown.empty()) {
    line.junit = line.folder + "/junit.xml";
    line.html = line.folder + "/report.html";
    line.markdown = line.folder + "/report.md";
  }
  Outputs outputs;
  const Speed speed = speed_for(line, 0, line.folder);
  write_documents(line, run.header, run.report, run.summary, outputs, &speed);
  const PageOptions options{.has_color = has_color(line),
                            .is_verbose = line.is_verbose,
                            .is_quiet = line.is_quiet,
                            .slowest = line.list_slowest,
                            .explains_fallbacks = line.explains_fallbacks};
  std::cout << verdict_page(run.header, run.report, run.summary, options);
  std::cout.flush();
  return with_outputs_checked(run.summary.exit_code, outputs);
}

}  // namespace bp::conformance
