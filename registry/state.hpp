// What a registry holds: plugins, and their devices as targets.
//
// Plugins and targets live until the registry ends, also after their unload, because what was lent
// of them stays readable; only what stands behind them ends.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/host.h"
#include "registry/calls/compiled_ops.hpp"
#include "registry/calls/selection.hpp"
#include "registry/layers/properties.hpp"
#include "registry/layers/stack.hpp"
#include "registry/plugins/host_services.hpp"
#include "registry/plugins/instance.hpp"
#include "registry/plugins/manifest.hpp"
#include "registry/plugins/registrar.hpp"
#include "registry/services/services.hpp"
#include "registry/stream_ends.hpp"

namespace bp::core {

struct Prepared;
struct Registry;
struct Target;

// How calls of one op on one target were served. A cache line of its own.
struct alignas(64) DispatchCounts {
  std::atomic<uint64_t> native = 0, decomposed = 0, host_fallback = 0, copied_scalars = 0;
};

// end_plugin() asks for the status itself.
struct CacheRelease {
  void operator()(services::Cache* cache) const {
    static_cast<void>(services::Cache::release(cache));
  }
};

// One backend in a registry.
struct Plugin final : bp_plugin {
  Plugin() : bp_plugin{} {}

  Registry* owner = nullptr;
  std::unique_ptr<HostServices> services;
  layers::Stack stack;  // Of layers. Before the instance, which ends in front of it.
  Instance instance;    // Empty after the unload.
  std::string own_name, own_version, own_path, own_refusals;  // What bp_plugin points to.
  std::vector<std::unique_ptr<Target>> targets;
};

// One device of a plugin.
struct Target final : bp_target {
  Target() : bp_target{} {}

  std::string own_name;
  // As of the load: a reset raises the device's generation.
  std::unique_ptr<layers::ShownProperties> own_properties;
  Tables own_tables;
  StreamEnds stream_ends;  // The `self` of own_tables.streams.
  KernelTable kernels;
  std::unique_ptr<CompiledOps> compiled;  // Empty without a compiler, and after the unload.
  Selection selection;
  std::unique_ptr<DispatchCounts[]> counts;              // By OpRow::index.
  std::unique_ptr<services::Cache, CacheRelease> cache;  // Empty after the unload.

  std::mutex prepared_mutex;
  std::vector<Prepared*> prepared;  // Guarded by prepared_mutex. Ended by the unload.

  // Streams on which this device serves as the host of a fallback, those that nobody uses. Guarded
  // by fallback_mutex.
  std::mutex fallback_mutex;
  std::vector<bp_stream*> fallback_streams;
  size_t fallback_stream_count = 0;  // With those in use.

  const Plugin& owner() const { return *static_cast<const Plugin*>(plugin); }
};

struct Registry {
  bp_registry_flags flags = 0;
  std::string search_path;
  bool has_search_path = false;
  std::string layers, layer_options;
  bool has_layers = false, has_layer_options = false;
  LogSink log{};

  mutable std::mutex mutex;
  // Guarded by mutex.
  std::vector<std::unique_ptr<Plugin>> plugins;
  std::vector<std::unique_ptr<Plugin>> ended;
  std::vector<Target*> targets;  // Of `plugins`, in the same order.
  std::vector<std::unique_ptr<Manifest>> manifests;
  // Where the host fallback runs. Read without the mutex.
  std::atomic<const bp_target*> host_target = nullptr;
};

inline Registry& impl(bp_registry* registry) { return *reinterpret_cast<Registry*>(registry); }
inline const Registry& impl(const bp_registry* registry) {
  return *reinterpret_cast<const Registry*>(registry);
}
inline bp_registry* face(Registry& registry) { return reinterpret_cast<bp_registry*>(&registry); }

// A target is lent as const so that callers leave it alone; its own functions count and remember.
inline Target& impl(const bp_target* target) {
  return *static_cast<Target*>(const_cast<bp_target*>(target));
}

// The sources from which calls of `target` may be served, as the registry's flags allow.
inline bp_kernel_sources allowed_sources(const Target& target) {
  const bp_registry_flags flags = impl(target.registry).flags;
  bp_kernel_sources sources = BP_KERNEL_NATIVE;
  if ((flags & BP_REGISTRY_FORBID_DECOMPOSITION) == 0) sources |= BP_KERNEL_DECOMPOSED;
  if ((flags & BP_REGISTRY_FORBID_HOST_FALLBACK) == 0) sources |= BP_KERNEL_HOST_FALLBACK;
  return sources;
}

// The candidates for the call that `key` was read from, remembered or newly found. `args` is a
// frame of at least the row's size. Never NULL.
inline const Choices* choose(Target& target, const OpRow& row, const Key& key, const void* args) {
  const uint64_t hash = key.hash(row.tensor_count);
  const Choices* choices = target.selection.find(key, hash);
  if (choices != nullptr) [[likely]] {
    return choices;
  }
  return choose_anew(target, row, key, hash, args);
}

// Whether `candidate` may be tried for a call: its source is among `sources`, its frame fits, and
// supports() agrees where it has to be asked.
inline bool is_taken(const Target& target, const OpRow& row, const Candidate& candidate,
                     bp_kernel_sources sources, bp_launch_flags flags, const void* args) {
  if ((candidate.source & sources) == 0) return false;
  if (!candidate.asks_supports && frame_size(args) == candidate.kernel->args_size_bytes) {
    return true;
  }
  return accepts(target, row, *candidate.kernel, flags, args);
}

}  // namespace bp::core
