// bp-conformance tests one backend, and shows what is right, wrong, missing and unstable in it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <system_error>

#include "conformance/cases/fixtures/child_routines.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/dist/jobs.hpp"
#include "conformance/report/files.hpp"
#include "conformance/report/summary.hpp"
#include "conformance/worker/worker.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

int g_interrupt_pipe[2] = {-1, -1};

// The second signal ends the process at once, and its workers with it.
void on_interrupt(int number) {
  const char byte = 1;
  static_cast<void>(!write(g_interrupt_pipe[1], &byte, 1));
  signal(number, SIG_DFL);
}

// A signal that was ignored when the program began stays ignored, as SIGHUP under nohup.
void prepare_signals() {
  if (pipe2(g_interrupt_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "no pipe for signals");
  }
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);  // A worker may be gone when the supervisor writes to it.
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
    case Verb::kPackage:
      return package_verb(line);
    case Verb::kVerify:
      return verify_verb(line);
    case Verb::kStress:
      return stress_verb(line);
    case Verb::kDist:
      return dist_verb(line);
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
  } catch (const OutputError& e) {
    complain(e.what());
    return kExitHarness;
  } catch (const std::exception& e) {
    complain(std::string("the suite itself failed: ") + e.what() +
             "; report this as a bug of the suite, unless the machine ran out of memory, files or "
             "processes");
    return kExitHarness;
  }
}

// Checks that all of standard output was written. If a full disk or a closed pipe lost output, the
// exit code must not report success.
int with_output_checked(int exit_code) {
  std::cout.flush();
  errno = 0;
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (is_written) return exit_code;
  const std::string reason = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
  complain("standard output could not be written" + reason);
  return exit_code == kExitInterrupted ? exit_code : kExitHarness;
}

}  // namespace

int interrupt_descriptor() {
  // Before the first call a signal ends the process at once, because there is nothing to save yet.
  if (g_interrupt_pipe[0] < 0) prepare_signals();
  return g_interrupt_pipe[0];
}

void complain(const std::string& text) {
  std::string one_line = text;
  while (!one_line.empty() && one_line.back() == '\n') one_line.pop_back();
  for (size_t at = 0; (at = one_line.find('\n', at)) != std::string::npos;) {
    one_line.replace(at, 1, "; ");
  }
  // The text may contain words of a file or of a backend.
  one_line = clean_text(one_line, LineBreaks::kEscape);
  std::fprintf(stderr, "bp-conformance: %s\n", one_line.c_str());
}

}  // namespace bp::conformance

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--worker") == 0) {
    return bp::conformance::run_worker(argv[2]);
  }
  if (argc == 3 && std::strcmp(argv[1], "--child") == 0) {
    return bp::conformance::run_child(argv[2], bp::conformance::child_routines());
  }
  if (argc == 3 && std::strcmp(argv[1], "--rank") == 0) {
    return bp::conformance::dist::run_rank(argv[2]);
  }
  return bp::conformance::with_output_checked(
      bp::conformance::run_program({argv + 1, argv + argc}));
}
