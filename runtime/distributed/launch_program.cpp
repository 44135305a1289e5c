// bp-launch starts a program several times on this machine, as the ranks of one job.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "runtime/distributed/launch_job.hpp"

namespace {

constexpr int kUsageExit = 2;

constexpr const char* kFooter =
    R"(Each rank has RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and
MASTER_PORT in its environment, as torchrun sets them, and OMP_NUM_THREADS if it was not set.
SIGINT and SIGTERM go to all ranks. If a rank fails, the others get SIGTERM. Ranks that still run
after the grace period, or at a second signal, get SIGKILL.

Exit codes:
  0      all ranks ended with 0
  N      the exit code of the rank that failed first; 128 + S if signal S ended it
  2      also: the command line is wrong
  126    also: PROGRAM cannot be run
  127    also: there is no PROGRAM)";

}  // namespace

int main(int argc, char** argv) {
  bp::distributed::JobOptions options;
  double grace_s = options.grace.count();
  CLI::App app(
      "Starts a program several times on this machine, as the ranks of one job:\n"
      "bp-launch -n N [OPTIONS] PROGRAM [ARGS...]",
      "bp-launch");
  app.footer(kFooter);
  app.prefix_command();
  app.add_option("-n,--ranks", options.rank_count, "how many ranks to start")
      ->required()
      ->check(CLI::Range(1, 4096));
  app.add_option("--log-dir", options.log_dir,
                 "write the output of rank R to DIR/rank_R.log, instead of lines that begin with "
                 "[R]")
      ->type_name("DIR");
  app.add_option("--port", options.port, "the port of rank 0's store (default: a free one)")
      ->check(CLI::Range(1, 65535));
  app.add_option("--grace", grace_s, "seconds from the first signal to SIGKILL")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    options.command = app.remaining();
    if (!options.command.empty() && options.command[0] == "--") {
      options.command.erase(options.command.begin());
    } else if (!options.command.empty() && options.command[0].starts_with("-")) {
      throw CLI::ExtrasError("bp-launch", {options.command[0]});
    }
    if (options.command.empty()) throw CLI::RequiredError("PROGRAM");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExit;
  }
  options.grace = std::chrono::duration<double>(grace_s);
  try {
    return bp::distributed::Job(std::move(options)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bp-launch: %s\n", error.what());
    return 1;
  }
}
