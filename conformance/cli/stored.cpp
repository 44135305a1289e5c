// The verbs on stored results: diff and report. Nothing is run, and no backend is needed.
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
                     const Summary& summary) {
  if (!line.junit.empty()) write_file(line.junit, junit_xml(report, summary));
  if (!line.html.empty()) write_file(line.html, html_page(header, report, summary));
  if (!line.markdown.empty()) write_file(line.markdown, markdown_page(header, report, summary));
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

// Without a file to write, the documents of the folder are written anew.
int report_verb(const CommandLine& given) {
  CommandLine line = given;
  const RestoredRun run = restore(StoredRun::read(line.folder));
  if (line.junit.empty() && line.html.empty() && line.markdown.empty()) {
    line.junit = line.folder + "/junit.xml";
    line.html = line.folder + "/report.html";
    line.markdown = line.folder + "/report.md";
  }
  write_documents(line, run.header, run.report, run.summary);
  const PageOptions options{.has_color = has_color(line),
                            .is_verbose = line.is_verbose,
                            .is_quiet = line.is_quiet,
                            .slowest = line.list_slowest};
  std::cout << verdict_page(run.header, run.report, run.summary, options);
  std::cout.flush();
  return run.summary.exit_code;
}

}  // namespace bp::conformance
