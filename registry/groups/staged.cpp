// The C function of staged.h.
#include "backplane/staged.h"

#include <memory>
#include <mutex>
#include <string>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/groups/staged_groups.hpp"

namespace bp::core {
namespace {

// Tries what every call of a staged group needs.
bp_status check_abilities(const bp_target& target, const bp_target& transport) {
  if (bp_target_has_table(&transport, BP_STRUCT_PROCESS_GROUP_OPS) == 0) {
    return fail(BP_UNSUPPORTED, std::string("staged_groups: transport: ") + transport.name +
                                    " has no process groups");
  }
  std::unique_ptr<StagedMemory> memory;
  const bp_status status = StagedMemory::make(target, transport, 1, memory);
  if (status != BP_OK) {
    return fail(status, std::string("staged_groups: ") + target.name + " over " + transport.name +
                            ": " + take_error());
  }
  for (const bp_target* const one : {&target, &transport}) {
    if (impl(one).cache == nullptr) return backend_unloaded(one->name);
    if (services::Gate::make(*one, *impl(one).cache) != nullptr) continue;
    return fail(BP_UNSUPPORTED, std::string("staged_groups: ") + one->name +
                                    " has no events that the host signals: " + take_error());
  }
  return BP_OK;
}

const bp_process_group_ops& table_over(const bp_target& target, const bp_target& transport,
                                       const bp_process_group_ops& inner) {
  auto& tables = impl(&target).own_plugin().staged;
  for (const auto& one : tables) {
    const auto& groups = static_cast<const StagedGroups&>(*one);
    if (groups.is_over(transport, inner)) return groups.table();
  }
  auto made = std::make_unique<StagedGroups>(impl(&target).owner(), transport, inner);
  const bp_process_group_ops& table = made->table();
  tables.push_back(std::move(made));
  return table;
}

}  // namespace
}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the function below is the namespace's C API.
using namespace bp::core;
using bp::fail;
using bp::is_null;

bp_status bp_staged_groups(const bp_target* target, const bp_target* transport,
                           const char* table_name,
                           const bp_process_group_ops** out_process_groups) {
  return guarded([&]() -> bp_status {
    if (target == nullptr) return is_null("target");
    if (transport == nullptr) return is_null("transport");
    if (out_process_groups == nullptr) return is_null("out_process_groups");
    if (target->registry != transport->registry) {
      return fail(BP_INVALID_ARGUMENT, "staged_groups: the two targets are of two registries");
    }
    const bp_process_group_ops* inner = nullptr;
    bp_status status = bp_target_find_process_groups(transport, table_name, &inner);
    if (status == BP_OK) status = check_abilities(*target, *transport);
    if (status != BP_OK) return status;
    const std::lock_guard lock(impl(target->registry).mutex);
    *out_process_groups = &table_over(*target, *transport, *inner);
    return BP_OK;
  });
}
