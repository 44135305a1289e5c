// The device that the runtime's tests run on: the first of class host among all backends found.
#pragma once

#include <string>

#include "backplane/runtime/device.hpp"
#include "backplane/runtime/error.hpp"

namespace bp {

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

}  // namespace bp
