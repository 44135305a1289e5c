// The table of process groups over MPI: how its groups are made and destroyed.
#include "backends/cpu/mpi/groups.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/cpu/mpi/library.hpp"
#include "backends/cpu/mpi/meeting.hpp"
#include "backends/cpu/shm/lanes.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/identity.hpp"

namespace bp::mpi {
namespace {

constexpr const char* kTableName = "mpi";

WorldPlan read_plan(Groups& g, const bp_process_group_desc& desc) {
  check_group_desc(desc);
  if (desc.local_count != 1) {
    refuse(BP_UNSUPPORTED, "create: local_count is " + std::to_string(desc.local_count) +
                               "; process groups \"mpi\" have one rank in each process, so choose "
                               "another table for ranks that share one");
  }
  g.backend().check_device(desc.devices[0], "create");
  WorldPlan plan{.device = desc.devices[0], .rank = desc.ranks[0], .size = desc.world_size};
  plan.timeout_ns = desc.timeout_ns;
  for (const auto& [key, value] : read_group_options(desc, kTableName, {&shm::kOption, 1})) {
    plan.shares_memory = shm::read_option(value);
  }
  plan.prefix = desc.key_prefix == nullptr ? "" : desc.key_prefix;
  if (plan.size == 1) return plan;
  if (desc.store == nullptr) {
    refuse(BP_INVALID_ARGUMENT,
           "create: store is NULL; it may be NULL only if all ranks live in this process");
  }
  check_offer(desc.store, kFirstSize<bp_store>, "create: store");
  plan.store = desc.store;
  return plan;
}

bp_status create(void* self, const bp_process_group_desc* theirs, bp_process_group** out_groups) {
  return Entries::entry(self, [&](Groups& g) -> bp_status {
    require(theirs, "create: desc");
    require(out_groups, "create: out_groups");
    const auto desc = read_desc(theirs, kFirstSize<bp_process_group_desc>,
                                BP_STRUCT_PROCESS_GROUP_DESC, "create");
    out_groups[0] = g.make(read_plan(g, desc), desc.timeout_ns, "create");
    return BP_OK;
  });
}

bp_status destroy(void* self, bp_process_group* handle) {
  return Entries::entry(self, [&](Groups&) -> bp_status {
    if (handle == nullptr) return BP_OK;
    Group& group = Entries::group_of(handle, "destroy");
    group.magic = 0;
    group.world->leave();
    delete &group;
    return BP_OK;
  });
}

// Starts MPI, and returns the number of this process in it.
int start_mpi(const Api& api, uint32_t world_size, uint64_t timeout_ns, const char* call) {
  Place place;
  const int error = api.start(timeout_ns, &place);
  if (error == kTimedOut) {
    refuse(BP_TIMEOUT, std::string(call) +
                           ": MPI has not started in time; it starts only when all processes of "
                           "mpirun start it, also those that are not in this group");
  }
  check(api, error, BP_UNSUPPORTED, call);
  if (static_cast<uint32_t>(place.process_count) >= world_size) return place.process;
  refuse(BP_UNSUPPORTED, std::string(call) + ": the group has " + std::to_string(world_size) +
                             " ranks, and MPI has " + std::to_string(place.process_count) +
                             (place.process_count == 1 ? " process" : " processes") +
                             "; start the program with mpirun -n " + std::to_string(world_size) +
                             ", or choose another table");
}

// Returns the tag with which the ranks make their communicator. Groups that are made at the same
// time have other keys, and so other tags.
int tag_of_keys(const std::string& prefix) {
  constexpr uint64_t kBasis = 0xcbf29ce484222325;
  return static_cast<int>(hash_text(kBasis, prefix) & 0x3fffff);
}

std::unique_ptr<shm::Lanes> share_lanes(const MeetingPlan& plan, bool is_wanted,
                                        const Deadline& deadline) {
  const MeetingStore store(plan);
  return shm::share_lanes(
      {.rank = plan.rank,
       .world_size = plan.world_size,
       .is_wanted = is_wanted,
       .put = [&](const std::string& key, const std::string& value) { store.put(key, value); },
       .get =
           [&](const std::string& key, uint32_t rank) {
             std::optional<std::string> value = store.get(key, deadline.left_ns());
             if (!value) refuse(BP_TIMEOUT, std::string(plan.call) + ": " + late(plan, rank));
             return *value;
           }});
}

}  // namespace

std::shared_ptr<World> World::make(const std::shared_ptr<Alarm>& alarm, const WorldPlan& plan,
                                   uint64_t timeout_ns, const char* call) {
  if (plan.size == 1) return std::make_shared<World>(alarm, plan, std::nullopt);
  const Deadline deadline(timeout_ns);
  const Api& api = load_api(call);
  const std::string prefix = plan.prefix + "mpi/";
  const MeetingPlan meeting{
      .store = *plan.store,
      .prefix = prefix,
      .rank = plan.rank,
      .world_size = plan.size,
      .timeout_ns = timeout_ns,
      .call = call,
      .start = [&](uint64_t left_ns) { return start_mpi(api, plan.size, left_ns, call); }};
  const std::vector<int> processes = meet(meeting);
  Communicator* communicator = nullptr;
  const int error = api.unite(processes.data(), static_cast<int>(plan.size), tag_of_keys(prefix),
                              deadline.left_ns(), &communicator);
  check(api, error, error == kTimedOut ? BP_TIMEOUT : BP_INTERNAL, call);
  Channel channel{api, communicator, plan.rank, plan.size};
  channel.lanes = share_lanes(meeting, plan.shares_memory, deadline);
  return std::make_shared<World>(alarm, plan, std::move(channel));
}

bp_process_group* Groups::make(const WorldPlan& plan, uint64_t timeout_ns, const char* call) {
  auto group = std::make_unique<Group>();
  group->world = World::make(pump_.alarm(), plan, timeout_ns, call);
  if (plan.size > 1 && plan.shares_memory && !group->world->has_lanes()) {
    shm::log_absence(host_, kTableName);
  }
  pump_.add(group->world);
  return reinterpret_cast<bp_process_group*>(group.release());
}

bp_process_group_ops Groups::table() {
  bp_process_group_ops table = Entries::table(this, kTableName);
  table.create = create;
  table.destroy = destroy;
  table.split = split_groups;
  table.shrink = shrink_groups;
  return table;
}

}  // namespace bp::mpi
