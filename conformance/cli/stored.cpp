// The verbs on stored results: diff and report. They run no case and need no backend.
#include <unistd.h>

#include <iostream>

#include "conformance/cli/verbs.hpp"
#include "conformance/report/diff.hpp"
#include "conformance/report/documents.hpp"
#include "conformance/report/files.hpp"
#include "conformance/report/page.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kShownChanges = 20;

}  // namespace

bool has_color(const CommandLine& line) {
  return line.color == "always" || (line.color == "auto" && isatty(STDOUT_FILENO) != 0);
}

void write_documents(const CommandLine& line, const RunHeader& header, const RunReport& report,
                     const Summary& summary, Outputs& outputs) {
  const auto write = [&](const std::string& path, const auto& text) {
    if (!path.empty()) outputs.attempt([&] { write_file(path, text()); });
  };
  write(line.junit, [&] { return junit_xml(report, summary); });
  write(line.html, [&] { return html_page(header, report, summary); });
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
  std::cout << diff_text(diff, before, after, line.is_verbose ? 0 : kShownChanges);
  std::cout.flush();
  const bool is_bad = line.is_strict ? !diff.is_empty() : !diff.new_failures.empty();
  return is_bad ? kExitFailures : kExitOk;
}

// If no document is named, the documents of the folder are written again.
int report_verb(const CommandLine& given) {
  CommandLine line = given;
  const RestoredRun run = restore(StoredRun::read(line.folder));
  if (line.junit.empty() && line.html.empty() && line.markdown.empty()) {
    line.junit = line.folder + "/junit.xml";
    line.html = line.folder + "/report.html";
    line.markdown = line.folder + "/report.md";
  }
  Outputs outputs;
  write_documents(line, run.header, run.report, run.summary, outputs);
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
