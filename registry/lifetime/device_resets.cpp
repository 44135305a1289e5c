#include "registry/lifetime/device_resets.hpp"

#include "registry/captures/captures.hpp"
#include "registry/dispatch/prepared.hpp"
#include "registry/lifetime/pass_on.hpp"

namespace bp::core {
namespace {

void forget_handles(Target& target) {
  lose_prepared(target);
  if (target.compiled != nullptr) target.compiled->forget_programs();
  {
    const std::lock_guard lock(target.fallback_mutex);
    target.fallback_stream_count -= target.fallback_streams.size();
    target.fallback_streams.clear();
  }
  target.stream_failures.forget_all();
  if (target.cache == nullptr) return;
  target.cache->forget_memory();
  // The caches forget first, so that the pools of captures give nothing back.
  for (services::Cache* cache : target.caches->others()) cache->forget_memory();
  target.pinned->forget();
  lose_captures(target);
}

bp_status reset(void* self, bp_device* device) {
  const Target& target = target_of(self);
  const bp_device_ops& next = target.next_devices;
  for (const auto& one : target.owner().targets) {
    if (one->device == device && one->pinned != nullptr) one->pinned->wait_for_others();
  }
  const bp_status status = next.reset(next.self, device);
  if (status != BP_OK) return status;
  for (const auto& one : target.owner().targets) {
    if (one->device == device) forget_handles(*one);
  }
  return BP_OK;
}

}  // namespace

void watch_resets(Target& target) {
  bp_device_ops& devices = target.own_tables.devices;
  pass_all_on<&Target::next_devices>(target, devices);
  devices.reset = reset;
}

}  // namespace bp::core
