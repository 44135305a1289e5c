// Starts and ends one backend of a registry.
#pragma once

#include <memory>

#include "registry/state/state.hpp"

namespace bp::core {

// The place from which a plugin comes.
struct Source {
  std::string label;                     // The path or name, for texts.
  std::string path;                      // An absolute path, or "(static)" if `entry` is set.
  std::string expected_name;             // The name in its manifest, or "" without a manifest.
  bp_backend_entry_fn* entry = nullptr;  // Set for a backend that is linked in.
};

// Loads a backend and lets it register. The targets are complete, but not yet in the registry.
// On failure nothing stays loaded, and the text says what and why.
bp_status start_plugin(Registry& registry, const Source& source, uint64_t option_count,
                       const bp_option* options, std::unique_ptr<Plugin>& out_plugin);

// Loads a backend, and adds it to the registry. bp_registry_load() calls it with what it found.
bp_status load_source(Registry& registry, const Source& source, uint64_t option_count,
                      const bp_option* options, const bp_plugin** out_plugin);

// Waits for the work of a plugin's devices. Returns BP_TIMEOUT if it has not ended after
// timeout_ns. Another failure of a device does not count, because end_plugin() meets it again.
bp_status wait_for_work(const Plugin& plugin, uint64_t timeout_ns);

// Ends a plugin whose targets have left the registry. It waits for the devices, frees the caches,
// ends the tables that were lent, and then ends the instance. Returns the status of the first step
// that failed.
bp_status end_plugin(Plugin& plugin);

}  // namespace bp::core
