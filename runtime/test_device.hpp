// The devices that the runtime's tests run on.
#pragma once

#include <functional>
#include <string>

#include "backplane/runtime/device.hpp"
#include "backplane/runtime/error.hpp"

namespace bp {

// Returns the first device of class host among all backends found.
inline Device test_device() {
  static const bp_target* const found = [] {
    bp_registry* registry = default_registry();
    uint64_t count = 0;
    check(bp_registry_discover(registry, &count), "registry.discover");
    for (uint64_t i = 0; i < count; ++i) {
      const bp_manifest* manifest = nullptr;
      const bp_plugin* plugin = nullptr;
      check(bp_registry_manifest(registry, i, &manifest), "registry.manifest");
      if (manifest->problem == nullptr)
        bp_registry_load(registry, manifest->name, 0, nullptr, &plugin);
    }
    for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
      const bp_target* target = bp_registry_target(registry, i);
      if (target->properties->device_class == BP_DEVICE_HOST) return target;
    }
    throw Error(BP_NOT_FOUND,
                std::string("no backend with a device of class host: ") + bp_error_text());
  }();
  return Device(*found);
}

// Returns the same device in a registry of its own. To the runtime it is another device.
inline Device second_test_device() {
  static const bp_target* const found = [] {
    const bp_target& first = test_device().target();
    const bp_registry_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_REGISTRY_DESC,
                                .flags = BP_REGISTRY_COMPILE_OPS};
    bp_registry* registry = nullptr;  // Never destroyed, like the default registry.
    check(bp_registry_create(&desc, &registry), "registry.create");
    check(bp_registry_load(registry, first.plugin->name, 0, nullptr, nullptr), "registry.load");
    const bp_target* target = nullptr;
    check(bp_registry_find_target(registry, first.name, &target), "registry.find_target");
    return target;
  }();
  return Device(*found);
}

// Returns the message of what the call throws.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace bp
