// bp-launch starts a program several times on this machine, as the ranks of one job. With --nnodes,
// it does so together with bp-launch on other machines.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "runtime/distributed/launch_job.hpp"

namespace {

constexpr int kUsageExit = 2;
constexpr uint32_t kMostRanks = 4096;
constexpr uint16_t kRendezvousPort = 29400;

constexpr const char* kFooter =
    R"(Each rank has RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and
MASTER_PORT in its environment, as torchrun sets them, and OMP_NUM_THREADS if it was not set. With
--nnodes, GROUP_RANK is the place of this bp-launch among GROUP_WORLD_SIZE.

If a rank fails, all ranks end. With --max-restarts they are started again, and programs go on from
their latest checkpoints. With -n MIN:MAX a job begins with MAX ranks, and is started again without
the ranks that were lost, as long as MIN are left; --max-restarts is MAX - MIN then, if it is not
given. BACKPLANE_RESTART_COUNT is 0 at first and counts the restarts, of which there are at most
BACKPLANE_MAX_RESTARTS. Ranks count from 0 without gaps; BACKPLANE_SLOT is the place of a rank
among MAX, which it keeps, so that a device that failed is not used again.

With --nnodes several bp-launch run one job, each with its -n ranks. They meet at --rdzv-endpoint,
which the first one on that machine serves, or the one with --node-rank 0. A job begins when MAX
have come, or MIN have and the last call is over. If a rank fails or a bp-launch is lost, all ranks
end, and start again with those that are left; if another bp-launch comes, they start again with it.
--max-restarts counts failures alone, and is MAX - MIN if it is not given. All of them must be given
the same --nnodes, --rdzv-id and --max-restarts. If the first one is lost, the job ends.

SIGINT and SIGTERM go to all ranks, and there is no restart. If a rank fails, the others get
SIGTERM. Ranks that still run after the grace period, or at a second signal, get SIGKILL.

Exit codes:
  0      all ranks ended with 0
  N      the exit code of the rank that failed first, behind the last restart; 128 + S if signal S
         ended it
  2      also: the command line is wrong
  126    also: PROGRAM cannot be run
  127    also: there is no PROGRAM)";

std::optional<uint32_t> number_of(const std::string& text, uint32_t most = kMostRanks) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < 1 || number > most) return std::nullopt;
  return number;
}

struct Counts {
  uint32_t least = 1, most = 1;
};

// Reads "N" or "MIN:MAX".
Counts read_counts(const char* option, const std::string& text) {
  const size_t colon = text.find(':');
  const auto least = number_of(text.substr(0, colon));
  const auto most = colon == std::string::npos ? least : number_of(text.substr(colon + 1));
  if (!least || !most || *least > *most) {
    throw CLI::ValidationError(
        option, "'" + text + "'; allowed: N or MIN:MAX, from 1 to " + std::to_string(kMostRanks));
  }
  return {*least, *most};
}

// What the command line says about other launchers.
struct OtherOptions {
  std::string nnodes, endpoint, id = "none", address;
  std::optional<uint32_t> node_rank;
  double join_s = 600, last_call_s = 30, heartbeat_s = 10;
};

void add_other_options(CLI::App& app, OtherOptions& options) {
  app.add_option("--nnodes,--nodes", options.nnodes,
                 "how many bp-launch run the job together, such as 2 or 1:4")
      ->type_name("N|MIN:MAX");
  app.add_option("--rdzv-endpoint,--rendezvous", options.endpoint,
                 "where they meet (port 29400 if it is not given)")
      ->type_name("HOST[:PORT]");
  app.add_option("--rdzv-id", options.id, "the name of the job, the same for all of them")
      ->capture_default_str();
  app.add_option("--node-rank", options.node_rank,
                 "the place of this bp-launch among them; 0 serves the rendezvous")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--local-addr", options.address,
                 "where others reach this machine (default: its name, or 127.0.0.1 if the "
                 "rendezvous is there)")
      ->type_name("HOST");
  const CLI::Range seconds(0.1, 31536000.0);
  app.add_option("--rdzv-timeout", options.join_s, "seconds to wait for MIN of them")
      ->check(seconds)
      ->capture_default_str();
  app.add_option("--rdzv-last-call", options.last_call_s,
                 "seconds to wait for more than MIN before the first start")
      ->check(CLI::Range(0.0, 31536000.0))
      ->capture_default_str();
  app.add_option("--rdzv-heartbeat", options.heartbeat_s,
                 "seconds without a sign of life after which one of them is lost")
      ->check(seconds)
      ->capture_default_str();
}

bp::distributed::Duration duration_of(double seconds) {
  return std::chrono::duration_cast<bp::distributed::Duration>(
      std::chrono::duration<double>(seconds));
}

std::string own_address(const std::string& rendezvous_host) {
  const bool is_local = rendezvous_host == "localhost" || rendezvous_host.starts_with("127.");
  char name[HOST_NAME_MAX + 1] = "127.0.0.1";
  if (!is_local) gethostname(name, sizeof(name) - 1);
  return name;
}

void read_endpoint(const std::string& text, bp::distributed::RendezvousOptions& options) {
  const size_t colon = text.rfind(':');
  options.host = text.substr(0, colon);
  options.port = kRendezvousPort;
  if (colon != std::string::npos) {
    const auto port = number_of(text.substr(colon + 1), UINT16_MAX);
    options.port = static_cast<uint16_t>(port.value_or(0));
  }
  if (options.host.empty() || options.port == 0) {
    throw CLI::ValidationError("--rdzv-endpoint", "'" + text +
                                                      "'; allowed: HOST or HOST:PORT, with a port "
                                                      "from 1 to 65535");
  }
}

// Returns nothing without --nnodes. `job` has the ranks of this launcher.
std::optional<bp::distributed::RendezvousOptions> read_others(
    const OtherOptions& given, const std::optional<uint32_t>& max_restarts,
    bp::distributed::JobOptions& job) {
  if (given.nnodes.empty()) {
    if (given.endpoint.empty() && !given.node_rank) return std::nullopt;
    throw CLI::ValidationError("--nnodes", "it is needed with --rdzv-endpoint and --node-rank");
  }
  if (given.endpoint.empty()) throw CLI::ValidationError("--rdzv-endpoint", "--nnodes needs it");
  if (job.least_ranks != job.most_ranks || job.port != 0) {
    throw CLI::ValidationError("--ranks", "with --nnodes it is one number, and there is no --port");
  }
  const Counts nodes = read_counts("--nnodes", given.nnodes);
  bp::distributed::RendezvousOptions options;
  read_endpoint(given.endpoint, options);
  options.id = given.id;
  options.least = nodes.least;
  options.most = nodes.most;
  options.ranks = job.most_ranks;
  options.max_restarts = max_restarts.value_or(nodes.most - nodes.least);
  job.max_restarts = options.max_restarts;
  options.node_rank = given.node_rank;
  options.own_address = given.address.empty() ? own_address(options.host) : given.address;
  options.join_timeout = duration_of(given.join_s);
  options.last_call = duration_of(given.last_call_s);
  options.heartbeat_timeout = duration_of(given.heartbeat_s);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  bp::distributed::JobOptions options;
  double grace_s = options.grace.count();
  CLI::App app(
      "Starts a program several times on this machine, as the ranks of one job, or as some of the\n"
      "ranks of a job on several machines:\n"
      "bp-launch -n N [OPTIONS] PROGRAM [ARGS...]",
      "bp-launch");
  app.footer(kFooter);
  app.prefix_command();
  std::string ranks;
  app.add_option("-n,--ranks,--nproc-per-node", ranks, "how many ranks to start, such as 4 or 2:4")
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
  OtherOptions other_options;
  add_other_options(app, other_options);
  std::optional<bp::distributed::RendezvousOptions> others;
  try {
    app.parse(argc, argv);
    const Counts counts = read_counts("--ranks", ranks);
    options.least_ranks = counts.least;
    options.most_ranks = counts.most;
    options.max_restarts = max_restarts.value_or(options.most_ranks - options.least_ranks);
    others = read_others(other_options, max_restarts, options);
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
    bp::distributed::Job job(std::move(options));
    if (!others) return job.run();
    bp::distributed::Rendezvous rendezvous(std::move(*others));
    return job.run_with(rendezvous);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bp-launch: %s\n", error.what());
    return 1;
  }
}
