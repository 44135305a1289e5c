#include "backends/cpu/mpi/meeting.hpp"

#include <map>
#include <optional>
#include <sstream>

#include "backplane/shell/deadline.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::mpi {
namespace {

// Rank 0 decides within a moment, unless its process has died in it.
constexpr uint64_t kDecisionNs = 5'000'000'000;

std::string name_of(uint32_t rank) { return "rank " + std::to_string(rank); }

class Meeting {
 public:
  explicit Meeting(const MeetingPlan& plan)
      : plan_(plan), store_(plan), deadline_(plan.timeout_ns) {}

  std::vector<int> run() {
    put(key_of("here", plan_.rank), std::to_string(plan_.world_size));
    for (uint32_t rank = 0; rank < plan_.world_size; ++rank) wait_for(rank);
    put(key_of("at", plan_.rank), std::to_string(plan_.start(deadline_.left_ns())));
    return processes_of(plan_.rank == 0 ? decide() : await_decision());
  }

 private:
  std::string key_of(const char* what, uint32_t rank) const {
    return std::string(what) + "/" + std::to_string(rank);
  }

  void put(const std::string& key, const std::string& value) const { store_.put(key, value); }
  std::optional<std::string> get(const std::string& key, uint64_t timeout_ns) const {
    return store_.get(key, timeout_ns);
  }

  std::string call() const { return std::string(plan_.call) + ": "; }

  std::string late(uint32_t rank) const { return mpi::late(plan_, rank); }

  // Returns the first rank that has not put a key; that of the world size if all have.
  uint32_t first_missing(const char* what) const {
    for (uint32_t rank = 0; rank < plan_.world_size; ++rank) {
      if (!get(key_of(what, rank), 0)) return rank;
    }
    return plan_.world_size;
  }

  void wait_for(uint32_t rank) const {
    const auto value = get(key_of("here", rank), deadline_.left_ns());
    if (!value) refuse(BP_TIMEOUT, call() + late(first_missing("here")));
    if (*value == std::to_string(plan_.world_size)) return;
    refuse(BP_INVALID_ARGUMENT, call() + name_of(rank) + " makes a group of " + *value +
                                    " ranks, " + name_of(plan_.rank) + " one of " +
                                    std::to_string(plan_.world_size));
  }

  // Waits for all ranks, and decides for all.
  std::string decide() const {
    std::string decision;
    const Outcome met = outcome_of([&] { decision = list_all(); });
    if (met.status != BP_OK) decision = "no " + std::to_string(met.status) + " " + met.text;
    put("decides", "");
    for (uint32_t rank = 1; met.status == BP_OK && rank < plan_.world_size; ++rank) {
      if (!get(key_of("left", rank), 0)) continue;
      decision = "no " + std::to_string(BP_TIMEOUT) + " " + name_of(rank) + " has given up";
    }
    put("decision", decision);
    return decision;
  }

  // Returns the processes of all ranks, as the decision tells them.
  std::string list_all() const {
    std::string list = "go";
    std::map<int, uint32_t> ranks;  // By process.
    for (uint32_t rank = 0; rank < plan_.world_size; ++rank) {
      const auto value = get(key_of("at", rank), deadline_.left_ns());
      if (!value) refuse(BP_TIMEOUT, late(first_missing("at")));
      const int process = std::stoi(*value);
      const auto [place, is_new] = ranks.try_emplace(process, rank);
      if (!is_new) {
        refuse(BP_UNSUPPORTED,
               name_of(place->second) + " and " + name_of(rank) + " are both process " +
                   std::to_string(process) +
                   " of MPI; each must be a process of its own that one mpirun has started");
      }
      list += " " + std::to_string(process);
    }
    return list;
  }

  std::string await_decision() const {
    if (auto decision = get("decision", deadline_.left_ns())) return *decision;
    const uint32_t missing = first_missing("at");
    put(key_of("left", plan_.rank), "");
    if (get("decides", 0)) {
      if (auto decision = get("decision", kDecisionNs)) return *decision;
    }
    refuse(BP_TIMEOUT, call() + late(missing == plan_.world_size ? 0 : missing));
  }

  std::vector<int> processes_of(const std::string& decision) const {
    std::istringstream words(decision);
    std::string first;
    words >> first;
    if (first != "go") {
      int status = BP_INTERNAL;
      std::string text;
      words >> status;
      std::getline(words >> std::ws, text);
      refuse(static_cast<bp_status>(status), call() + text);
    }
    std::vector<int> processes;
    for (int process = 0; words >> process;) processes.push_back(process);
    return processes;
  }

  const MeetingPlan& plan_;
  const MeetingStore store_;
  const Deadline deadline_;
};

}  // namespace

void MeetingStore::put(const std::string& key, const std::string& value) const {
  const std::string name = plan_.prefix + key;
  if (plan_.store.put(plan_.store.self, name.c_str(), value.data(), value.size()) == BP_OK) return;
  refuse(BP_INTERNAL, std::string(plan_.call) + ": the store does not take \"" + name + "\"");
}

std::optional<std::string> MeetingStore::get(const std::string& key, uint64_t timeout_ns) const {
  const std::string name = plan_.prefix + key;
  std::string value(512 + plan_.world_size * size_t{12}, '\0');
  uint64_t size_bytes = 0;
  const bp_status status = plan_.store.get(plan_.store.self, name.c_str(), timeout_ns, value.size(),
                                           value.data(), &size_bytes);
  if (status == BP_TIMEOUT) return std::nullopt;
  if (status != BP_OK || size_bytes > value.size()) {
    refuse(BP_INTERNAL,
           std::string(plan_.call) + ": the store gives no value for \"" + name + "\"");
  }
  value.resize(size_bytes);
  return value;
}

std::string late(const MeetingPlan& plan, uint32_t rank) {
  return name_of(rank) + " did not come within " + std::to_string(plan.timeout_ns / 1'000'000) +
         " ms";
}

std::vector<int> meet(const MeetingPlan& plan) { return Meeting(plan).run(); }

}  // namespace bp::mpi
