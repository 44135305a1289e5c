// The table of process groups over Gloo: how its groups are made and destroyed.
#include "backends/cpu/groups/groups.hpp"

#include <string>
#include <utility>

#include "backplane/shell/deadline.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/group_checks.hpp"

namespace bp::cpu {
namespace {

constexpr const char* kTableName = "gloo";

// ---- Making groups ------------------------------------------------------------------------------

// Reads a desc and checks it.
WorldPlan read_plan(Groups& g, const bp_process_group_desc& desc) {
  check_group_desc(desc);
  WorldPlan plan;
  plan.options = read_listen_options(desc, kTableName);
  plan.size = desc.world_size;
  plan.timeout_ns = desc.timeout_ns;
  plan.prefix = desc.key_prefix == nullptr ? "" : desc.key_prefix;
  for (uint32_t i = 0; i < desc.local_count; ++i) {
    g.backend().check_device(desc.devices[i], "create");
    plan.devices.push_back(desc.devices[i]);
    plan.ranks.push_back(desc.ranks[i]);
  }
  if (desc.local_count == desc.world_size) {
    plan.local_store = std::make_shared<LocalStore>();
  } else if (desc.store == nullptr) {
    refuse(BP_INVALID_ARGUMENT,
           "create: store is NULL; it may be NULL only if all ranks live in this process");
  } else {
    check_offer(desc.store, kFirstSize<bp_store>, "create: store");
    plan.store = desc.store;
  }
  return plan;
}

bp_status create(void* self, const bp_process_group_desc* theirs, bp_process_group** out_groups) {
  return Entries::entry(self, [&](Groups& g) -> bp_status {
    require(theirs, "create: desc");
    require(out_groups, "create: out_groups");
    const auto desc = read_desc(theirs, kFirstSize<bp_process_group_desc>,
                                BP_STRUCT_PROCESS_GROUP_DESC, "create");
    const WorldPlan plan = read_plan(g, desc);
    const Deadline deadline(desc.timeout_ns);
    const std::shared_ptr<World> world = g.start(plan, "create");
    world->wait_until_made(deadline, desc.timeout_ns, "create");
    for (uint32_t i = 0; i < desc.local_count; ++i) {
      out_groups[i] = face(world, *world->members()[i]);
    }
    return BP_OK;
  });
}

bp_status destroy(void* self, bp_process_group* handle) {
  return Entries::entry(self, [&](Groups& g) -> bp_status {
    if (handle == nullptr) return BP_OK;
    Group& group = Entries::group_of(handle, "destroy");
    group.magic = 0;
    group.member->leave();
    delete &group;
    g.forget_ended();
    return BP_OK;
  });
}

}  // namespace

bp_process_group* face(const std::shared_ptr<World>& world, Member& member) {
  return reinterpret_cast<bp_process_group*>(new Group{.world = world, .member = &member});
}

std::shared_ptr<World> Groups::start(const WorldPlan& plan, const char* call) {
  forget_ended();
  auto world = World::start(threads_, plan, call);
  worlds_->add(world);
  return world;
}

bp_process_group_ops Groups::table() {
  bp_process_group_ops table = Entries::table(this, kTableName);
  table.create = create;
  table.destroy = destroy;
  table.split = split_groups;
  table.shrink = shrink_groups;
  return table;
}

}  // namespace bp::cpu
