#include "backends/cuda/collective_world.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "backplane/shell/group_checks.hpp"
#include "backplane/shell/options.hpp"

namespace bp::cuda {
namespace {

constexpr const char* kIdKey = "nccl/id";

// Returns the id that all ranks of a world share. The process of rank 0 makes it.
ncclUniqueId unique_id(const Nccl& nccl, const WorldPlan& plan, const char* call) {
  ncclUniqueId id{};
  const std::string key = plan.prefix + kIdKey;
  const bool is_first = std::ranges::find(plan.ranks, 0u) != plan.ranks.end();
  if (is_first) check(nccl, nccl.get_unique_id(&id), "ncclGetUniqueId");
  if (plan.store == nullptr) return id;
  const bp_store& store = *plan.store;
  if (is_first) {
    if (store.put(store.self, key.c_str(), &id, sizeof(id)) != BP_OK) {
      refuse(BP_INTERNAL, std::string(call) + ": the store does not take \"" + key + "\"");
    }
    return id;
  }
  uint64_t size_bytes = 0;
  const bp_status status =
      store.get(store.self, key.c_str(), plan.timeout_ns, sizeof(id), &id, &size_bytes);
  if (status == BP_TIMEOUT) {
    refuse(BP_TIMEOUT, std::string(call) + ": rank 0 did not come within the timeout");
  }
  if (status != BP_OK || size_bytes != sizeof(id)) {
    refuse(BP_INTERNAL, std::string(call) + ": the store gives no id for \"" + key + "\"");
  }
  return id;
}

}  // namespace

Group& group_of(bp_process_group* handle, const char* call) {
  return checked_object_of<Group>(handle, call, "group");
}

bp_process_group* face(const std::shared_ptr<NcclWorld>& world, NcclMember* member) {
  return reinterpret_cast<bp_process_group*>(new Group{.world = world, .member = member});
}

NcclOptions read_nccl_options(const bp_process_group_desc& desc, const char* table_name) {
  constexpr std::string_view kKeys[] = {"min_ctas", "max_ctas"};
  constexpr uint64_t kMostCtas = 64;
  NcclOptions options;
  for (const auto& [key, value] : read_group_options(desc, table_name, kKeys)) {
    int& option = key == kKeys[0] ? options.min_ctas : options.max_ctas;
    option = static_cast<int>(read_number(key, value, 1, kMostCtas));
  }
  const bool has_both =
      options.min_ctas != NCCL_CONFIG_UNDEF_INT && options.max_ctas != NCCL_CONFIG_UNDEF_INT;
  if (has_both && options.min_ctas > options.max_ctas) {
    refuse(BP_INVALID_ARGUMENT, "create: min_ctas is " + std::to_string(options.min_ctas) +
                                    "; it must be at most max_ctas, which is " +
                                    std::to_string(options.max_ctas));
  }
  return options;
}

ncclConfig_t configuration(const NcclOptions& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = options.min_ctas;
  config.maxCTAs = options.max_ctas;
  return config;
}

void check_devices(const WorldPlan& plan) {
  std::unordered_set<Device*> seen;
  for (Device* device : plan.devices) {
    if (!seen.insert(device).second) {
      refuse(BP_UNSUPPORTED, "create: device " + std::to_string(device->ordinal()) +
                                 " has two ranks; NCCL takes one rank for each device");
    }
  }
}

std::unique_ptr<NcclMember> make_member(Collectives& c, uint32_t rank, Device& device) {
  auto member = std::make_unique<NcclMember>();
  member->rank = rank;
  member->device = &device;
  member->launches = std::make_shared<Queue>(*c.instance().host, c.watch().launcher(), false);
  return member;
}

std::vector<NcclMember*> members_of(NcclWorld& world) {
  std::vector<NcclMember*> members;
  for (const auto& member : world.members()) members.push_back(member.get());
  return members;
}

// Connects the ranks by a sum of one element of each rank.
void meet(Collectives& c, NcclWorld& world, NcclClock::time_point deadline, const char* call) {
  const std::vector<NcclMember*> members = members_of(world);
  std::vector<std::shared_ptr<Lane>> lanes;
  for (NcclMember* member : members) {
    lanes.push_back(make_lane(*member->device, 0));
    const Current current(*member->device);
    member->scratch = c.scratch(*member->device);
  }
  size_t next = 0;
  in_group(world.nccl(), members, [&](NcclMember& m) {
    check(world.nccl(),
          world.nccl().all_reduce(m.scratch, m.scratch, 1, ncclInt32, ncclSum, m.comm,
                                  lanes[next++]->native()),
          "ncclAllReduce");
  });
  world.wait_ready(members, deadline, call);
  for (const std::shared_ptr<Lane>& lane : lanes) {
    if (!wait_until(deadline, [&] { return lane->is_done(); })) {
      refuse(BP_TIMEOUT, std::string(call) + ": not every rank came within the timeout");
    }
  }
}

std::shared_ptr<NcclWorld> make_world(Collectives& c, const Nccl& nccl, const WorldPlan& plan,
                                      const char* call) {
  const auto deadline = deadline_of(plan.timeout_ns);
  auto world = std::make_shared<NcclWorld>(nccl, plan.world_size, plan.timeout_ns, plan.store,
                                           plan.prefix, plan.options);
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    world->members().push_back(make_member(c, plan.ranks[i], *plan.devices[i]));
  }
  const ncclUniqueId id = unique_id(nccl, plan, call);
  in_group(nccl, members_of(*world), [&](NcclMember& m) {
    ncclConfig_t config = configuration(plan.options);
    check(nccl,
          nccl.init_rank(&m.comm, static_cast<int>(plan.world_size), id, static_cast<int>(m.rank),
                         &config),
          "ncclCommInitRankConfig");
  });
  world->wait_ready(members_of(*world), deadline, call);
  meet(c, *world, deadline, call);
  return world;
}

}  // namespace bp::cuda
