// bp-conformance: takes one backend and says what in it is right, wrong, missing and unstable.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "conformance/cases/child_routines.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/report/summary.hpp"
#include "conformance/runner/worker.hpp"

namespace bp::conformance {
namespace {

int g_interrupt_pipe[2] = {-1, -1};

// The second signal ends the process at once, and with it its workers.
void on_interrupt(int number) {
  const char byte = 1;
  static_cast<void>(!write(g_interrupt_pipe[1], &byte, 1));
  signal(number, SIG_DFL);
}

bool prepare_signals() {
  if (pipe2(g_interrupt_pipe, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);  // A worker may be gone when it is written to.
  return true;
}

int dispatch(const CommandLine& line) {
  switch (line.verb) {
    case Verb::kRun:
      return run_verb(line);
    case Verb::kList:
      return list_verb(line);
    case Verb::kInfo:
      return info_verb(line);
    case Verb::kCoverage:
      return coverage_verb(line);
    case Verb::kPerf:
      return perf_verb(line);
    case Verb::kShrink:
      return shrink_verb(line);
    case Verb::kRepro:
      return repro_verb(line);
    case Verb::kReplay:
      return run_verb(line);
    case Verb::kDiff:
      return diff_verb(line);
    case Verb::kReport:
      return report_verb(line);
    case Verb::kExplain:
      return explain_verb(line);
    case Verb::kSelftest:
      return selftest_verb(line);
    case Verb::kNew:
      return new_verb(line);
  }
  return kExitUsage;
}

int run_program(std::vector<std::string> words) {
  try {
    const CommandLine line = parse_command_line(std::move(words));
    if (!prepare_signals()) {
      complain("no pipe for signals");
      return kExitHarness;
    }
    return dispatch(line);
  } catch (const CommandLineEnd& end) {
    if (end.exit_code == kExitOk) {
      std::fputs(end.text.c_str(), stdout);
    } else {
      complain(end.text + "; see --help");
    }
    return end.exit_code;
  } catch (const UsageError& e) {
    complain(e.what());
    return kExitUsage;
  } catch (const NothingMatched& e) {
    complain(e.what());
    return kExitNothingRan;
  } catch (const std::exception& e) {
    complain(std::string("the suite broke: ") + e.what());
    return kExitHarness;
  }
}

}  // namespace

int interrupt_descriptor() { return g_interrupt_pipe[0]; }

void complain(const std::string& text) {
  std::string one_line = "bp-conformance: " + text;
  while (!one_line.empty() && one_line.back() == '\n') one_line.pop_back();
  for (size_t at = 0; (at = one_line.find('\n', at)) != std::string::npos;) {
    one_line.replace(at, 1, "; ");
  }
  std::fprintf(stderr, "%s\n", one_line.c_str());
}

}  // namespace bp::conformance

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--worker") == 0) {
    return bp::conformance::run_worker(argv[2]);
  }
  if (argc == 3 && std::strcmp(argv[1], "--child") == 0) {
    return bp::conformance::run_child(argv[2], bp::conformance::child_routines());
  }
  return bp::conformance::run_program({argv + 1, argv + argc});
}
