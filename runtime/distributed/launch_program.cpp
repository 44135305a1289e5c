// bp-launch starts a program several times on this machine, as the ranks of one job.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "runtime/distributed/launch_job.hpp"

namespace {

constexpr int kUsageExit = 2;
constexpr uint32_t kMostRanks = 4096;

constexpr const char* kFooter =
    R"(Each rank has RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and
MASTER_PORT in its environment, as torchrun sets them, and OMP_NUM_THREADS if it was not set.

If a rank fails, all ranks end. With --max-restarts they are started again, and programs go on from
their latest checkpoints. With -n MIN:MAX a job begins with MAX ranks, and is started again without
the ranks that were lost, as long as MIN are left; --max-restarts is MAX - MIN then, if it is not
given. BACKPLANE_RESTART_COUNT is 0 at first and counts the restarts, of which there are at most
BACKPLANE_MAX_RESTARTS. Ranks count from 0 without gaps; BACKPLANE_SLOT is the place of a rank
among MAX, which it keeps, so that a device that failed is not used again.

SIGINT and SIGTERM go to all ranks, and there is no restart. If a rank fails, the others get
SIGTERM. Ranks that still run after the grace period, or at a second signal, get SIGKILL.

Exit codes:
  0      all ranks ended with 0
  N      the exit code of the rank that failed first, behind the last restart; 128 + S if signal S
         ended it
  2      also: the command line is wrong
  126    also: PROGRAM cannot be run
  127    also: there is no PROGRAM)";

std::optional<uint32_t> number_of(const std::string& text) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < 1 || number > kMostRanks) return std::nullopt;
  return number;
}

// Reads "N" or "MIN:MAX".
void read_ranks(const std::string& text, bp::distributed::JobOptions& options) {
  const size_t colon = text.find(':');
  const auto least = number_of(text.substr(0, colon));
  const auto most = colon == std::string::npos ? least : number_of(text.substr(colon + 1));
  if (!least || !most || *least > *most) {
    throw CLI::ValidationError("--ranks", "'" + text + "'; allowed: N or MIN:MAX, from 1 to " +
                                              std::to_string(kMostRanks));
  }
  options.least_ranks = *least;
  options.most_ranks = *most;
}

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
  std::string ranks;
  app.add_option("-n,--ranks", ranks, "how many ranks to start, such as 4 or 2:4")
      ->required()
      ->type_name("N|MIN:MAX");
  std::optional<uint32_t> max_restarts;
  app.add_option(
         "--max-restarts", max_restarts,
         "how often to start the ranks again when one has failed (default: 0, or MAX - MIN)")
      ->check(CLI::Range(0, 1000000));
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
    read_ranks(ranks, options);
    options.max_restarts = max_restarts.value_or(options.most_ranks - options.least_ranks);
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
