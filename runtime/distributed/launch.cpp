#include "backplane/runtime/distributed/launch.hpp"

#include <charconv>
#include <optional>
#include <string_view>

#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

// The variables of one launcher.
struct Source {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;  // NULL if it has none.
};

constexpr Source kSources[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};
constexpr const Source& kTorchrun = kSources[0];
constexpr const Source& kSlurm = kSources[3];

constexpr uint64_t kMostRanks = uint64_t{1} << 24;

[[noreturn]] void fail(const std::string& text) {
  throw Error(BP_INVALID_ARGUMENT, "read_launch: " + text);
}

// The environment. An empty variable counts as not set.
class Variables {
 public:
  explicit Variables(const GetVariable& get_variable) : get_variable_(get_variable) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = name == nullptr ? nullptr : get_variable_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }

  std::optional<uint64_t> number(const char* name, uint64_t most) const {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    uint64_t number = 0;
    const char* const last = value->data() + value->size();
    const auto [end, error] = std::from_chars(value->data(), last, number);
    if (error != std::errc() || end != last || number > most) {
      fail(std::string(name) + " is '" + *value + "'; allowed: a number from 0 to " +
           std::to_string(most));
    }
    return number;
  }

  std::string shown(const char* name) const { return std::string(name) + " is " + *text(name); }

 private:
  const GetVariable& get_variable_;
};

// Throws if the variables of one launcher do not fit together.
void check_source(const Variables& variables, const Source& source) {
  const auto rank = variables.number(source.rank, kMostRanks);
  const auto size = variables.number(source.world_size, kMostRanks);
  const auto local_rank = variables.number(source.local_rank, kMostRanks);
  if (!size) {
    fail(variables.shown(source.rank) + " and " + source.world_size +
         " is not set; allowed: both, or none");
  }
  if (*rank >= *size) {
    fail(variables.shown(source.rank) + " and " + variables.shown(source.world_size) +
         "; allowed: a rank below the world size");
  }
  if (local_rank && *local_rank > *rank) {
    fail(variables.shown(source.local_rank) + " and " + variables.shown(source.rank) +
         "; allowed: a local rank up to the rank");
  }
}

// Throws if another launcher than `chosen` gives another rank or world size.
void check_others(const Variables& variables, const Source& chosen) {
  const bool is_nested = &chosen == &kTorchrun && variables.text("GROUP_RANK").has_value();
  if (is_nested || &chosen == &kSlurm) return;
  for (const Source& other : kSources) {
    if (&other == &chosen || &other == &kSlurm || !variables.text(other.rank)) continue;
    for (const auto member : {&Source::rank, &Source::world_size}) {
      const auto here = variables.number(chosen.*member, kMostRanks);
      const auto there = variables.number(other.*member, kMostRanks);
      if (!there || here == there) continue;
      fail(variables.shown(chosen.*member) + " and " + variables.shown(other.*member) +
           "; allowed: equal values, or the variables of one launcher");
    }
  }
}

// Returns the first host of a list like "node[003-010,12]-ib,other".
std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t close = list.find(']', i);
    if (close == std::string::npos) fail("the list of nodes '" + list + "' has no ']'");
    host += list.substr(i + 1, list.find_first_of(",-]", i) - i - 1);
    i = close;
  }
  return host;
}

// Rank 0 of Slurm runs on the first node of the step. The node that launched may be another one.
std::optional<std::string> slurm_host(const Variables& variables) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (const auto list = variables.text(name)) return first_host(*list);
  }
  return variables.text("SLURM_LAUNCH_NODE_IPADDR");
}

std::string host_of(const Variables& variables, const Source& source, uint32_t world_size) {
  if (auto host = variables.text("MASTER_ADDR")) return *host;
  if (&source == &kSlurm) {
    if (auto host = slurm_host(variables)) return *host;
  }
  const auto local_size = variables.number(source.local_size, kMostRanks);
  if (world_size == 1 || local_size == world_size) return "127.0.0.1";
  fail("MASTER_ADDR is not set, and " + variables.shown(source.world_size) +
       "; it must name the host of rank 0");
}

uint16_t port_of_job(const Variables& variables, const Source& source) {
  if (const auto port = variables.number("MASTER_PORT", UINT16_MAX)) {
    // torchrun may serve a store of its own there.
    const bool is_taken = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (*port == 0 || (is_taken && *port == UINT16_MAX)) {
      fail(variables.shown("MASTER_PORT") + "; allowed: a number from 1 to " +
           (is_taken ? "65534, since TORCHELASTIC_USE_AGENT_STORE is True" : "65535"));
    }
    return static_cast<uint16_t>(*port + (is_taken ? 1 : 0));
  }
  const auto job = &source == &kSlurm ? variables.number("SLURM_JOB_ID", UINT64_MAX) : std::nullopt;
  return static_cast<uint16_t>(job ? 20000 + *job % 10000 : 29500);
}

uint32_t restart_count_of(const Variables& variables) {
  for (const char* name : {"BACKPLANE_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"}) {
    if (const auto count = variables.number(name, UINT32_MAX)) return static_cast<uint32_t>(*count);
  }
  return 0;
}

}  // namespace

Launch read_launch(const GetVariable& get_variable) {
  const Variables variables(get_variable);
  if (variables.text("WORLD_SIZE") && !variables.text("RANK")) {
    fail(variables.shown("WORLD_SIZE") + " and RANK is not set; allowed: both, or none");
  }
  for (const Source& source : kSources) {
    if (!variables.text(source.rank)) continue;
    check_source(variables, source);
    check_others(variables, source);
    Launch launch;
    launch.launcher = source.launcher;
    launch.rank = static_cast<uint32_t>(*variables.number(source.rank, kMostRanks));
    launch.world_size = static_cast<uint32_t>(*variables.number(source.world_size, kMostRanks));
    launch.master_host = host_of(variables, source, launch.world_size);
    launch.master_port = port_of_job(variables, source);
    const auto local_rank = variables.number(source.local_rank, kMostRanks);
    if (!local_rank && launch.world_size > 1) {
      fail(std::string(source.local_rank) + " is not set, and " +
           variables.shown(source.world_size));
    }
    launch.local_rank = static_cast<uint32_t>(local_rank.value_or(0));
    const auto slot = variables.number("BACKPLANE_SLOT", kMostRanks);
    launch.slot = static_cast<uint32_t>(slot.value_or(launch.local_rank));
    launch.restart_count = restart_count_of(variables);
    return launch;
  }
  return {};
}

}  // namespace bp::distributed
