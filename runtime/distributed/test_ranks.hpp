// Ranks for tests: threads of this process, each on a device of one asynchronous plugin.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/error.hpp"

namespace bp::distributed {

// Returns the devices of a registry that has four of them, and a device for ops without a kernel.
// Some of their work is delayed, so that a stream which does not wait for another one shows.
inline const std::vector<Device>& test_devices() {
  // Never destroyed, like the registry.
  static const auto* const devices = [] {
    const bp_registry_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_REGISTRY_DESC,
                                .flags = BP_REGISTRY_COMPILE_OPS};
    bp_registry* registry = nullptr;
    check(bp_registry_create(&desc, &registry), "registry.create");
    const bp_option options[] = {
        {"device_count", "4"}, {"delay_us", "300"}, {"delay_probability", "0.1"}};
    const bp_plugin* plugin = nullptr;
    check(bp_registry_load(registry, BACKPLANE_TEST_ASYNC_PLUGIN, std::size(options), options,
                           &plugin),
          "registry.load");
    const std::string other = BACKPLANE_TEST_PLUGIN;
    if (!other.empty()) {
      check(bp_registry_load(registry, other.c_str(), 0, nullptr, nullptr), "registry.load");
    }
    auto* found = new std::vector<Device>;
    for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
      const bp_target* target = bp_registry_target(registry, i);
      if (target->plugin == plugin) found->emplace_back(*target);
    }
    return found;
  }();
  return *devices;
}

// Returns the device for ops without a kernel, which is of another plugin.
inline Device other_test_device() {
  const bp_target& first = test_devices()[0].target();
  for (uint64_t i = 0; i < bp_registry_target_count(first.registry); ++i) {
    const bp_target* target = bp_registry_target(first.registry, i);
    if (target->plugin != first.plugin) return Device(*target);
  }
  throw Error(BP_NOT_FOUND, "the registry has devices of one plugin only");
}

// Runs `body` for each rank in a thread of its own, and returns what each threw; "" if nothing.
inline std::vector<std::string> messages_of_ranks(uint32_t count,
                                                  const std::function<void(uint32_t)>& body) {
  std::vector<std::string> messages(count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        messages[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

// Runs `body` with the group of each rank, whose device is current. Throws what the lowest rank
// threw.
inline void run_ranks(uint32_t count, const std::function<void(ProcessGroup&)>& body,
                      const GroupOptions& options = {}) {
  const std::vector<Device>& devices = test_devices();
  std::vector<ProcessGroup> groups = ProcessGroup::make_local({devices.data(), count}, options);
  const std::vector<std::string> messages = messages_of_ranks(count, [&](uint32_t rank) {
    const DeviceGuard guard(devices[rank]);
    body(groups[rank]);
  });
  for (uint32_t rank = 0; rank < count; ++rank) {
    if (messages[rank].empty()) continue;
    throw Error(BP_INTERNAL, "rank " + std::to_string(rank) + ": " + messages[rank]);
  }
}

}  // namespace bp::distributed
