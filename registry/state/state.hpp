// The data of a registry: its plugins, and their devices as targets.
//
// After an unload, the Plugin and its Targets live until the registry ends, because programs may
// still read the structs that they were lent. Only the backend behind them ends.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/host.h"
#include "registry/boundary/log_sink.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/calls/choices.hpp"
#include "registry/calls/compiled_ops.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/layers/properties.hpp"
#include "registry/layers/stack.hpp"
#include "registry/plugins/host_services.hpp"
#include "registry/plugins/instance.hpp"
#include "registry/plugins/manifest.hpp"
#include "registry/services/cache_set.hpp"
#include "registry/services/caching_allocator.hpp"
#include "registry/services/pinned_memory.hpp"
#include "registry/state/reasons.hpp"
#include "registry/state/stream_failures.hpp"

namespace bp::core {

struct Capture;
struct CapturedGraph;
struct Prepared;
struct Registry;
struct Target;

// Counts how calls of one op on one target were served. Each op has its own cache line.
struct alignas(64) DispatchCounts {
  std::atomic<uint64_t> native = 0, decomposed = 0, host_fallback = 0, copied_scalars = 0;
  std::atomic<uint64_t> realigned = 0;
  std::atomic<uint64_t> laid_out = 0;
};

// Releases a cache whose status nobody needs. end_plugin() calls release() itself, for the status.
struct CacheRelease {
  void operator()(services::Cache* cache) const {
    static_cast<void>(services::Cache::release(cache));
  }
};

// A table of process groups that the registry made for a backend (staged.h).
struct StagedTable {
  virtual ~StagedTable() = default;
};

// One backend in a registry.
struct Plugin final : bp_plugin {
  Plugin() : bp_plugin{} {}

  Registry* owner = nullptr;
  std::unique_ptr<HostServices> services;
  layers::Stack stack;  // It is declared before the instance, so that the instance ends first.
  Instance instance;    // It is empty after the unload.
  OwnedOps ops;         // It is declared behind the instance, whose functions it calls.
  std::string own_name, own_version, own_path, own_refusals;  // bp_plugin points to them.
  std::vector<std::unique_ptr<Target>> targets;
  std::vector<std::unique_ptr<StagedTable>> staged;  // Registry::mutex guards it.
};

// The kernels of a target, best first.
struct KernelTable {
  std::vector<std::vector<const bp_kernel*>> by_op;                           // By OpRow::index.
  std::map<std::string, std::vector<const bp_kernel*>, std::less<>> by_name;  // By op_name.
  std::vector<const bp_kernel*> all;
  // Serves the ops of run time that no kernel names. It is NULL unless the registry compiles ops.
  CompiledOps* compiled = nullptr;

  // Returns the kernels of an op. Those of an op that was described at run time were added by its
  // name, and perhaps before the description: revision_defect() tells which of them fit.
  const std::vector<const bp_kernel*>& of(const OpRow& row) const {
    static const std::vector<const bp_kernel*> none;
    if (!is_runtime_op(row)) return row.index < by_op.size() ? by_op[row.index] : none;
    const auto found = by_name.find(std::string_view(row.name));
    if (found != by_name.end()) return found->second;
    return compiled == nullptr ? none : compiled->runtime_kernels(row);
  }
};

// One device of a plugin.
struct Target final : bp_target {
  Target() : bp_target{} {}

  std::string own_name;
  std::unique_ptr<layers::ShownProperties> own_properties;
  uint64_t table_mask = 0;  // What added_tables() says of the backend's tables.
  Tables own_tables;
  std::vector<bp_process_group_ops*> groups;  // The tables of process groups, of own_tables.
  std::deque<std::string> group_names;        // The tables point to them.
  // The functions of the backend, or of its outermost layer. own_tables.streams, devices and, with
  // a compiler, allocator call them.
  bp_stream_ops next_streams{};
  bp_device_ops next_devices{};
  bp_allocator_ops next_allocator{};
  StreamFailures stream_failures;
  KernelTable kernels;
  std::unique_ptr<CompiledOps> compiled;  // NULL without a compiler, and after the unload.
  bool is_compile_only = false;           // No kernel serves a launch that was not prepared.
  Selection selection;
  Reasons reasons;
  std::unique_ptr<DispatchCounts[]> counts;  // OpRow::index is the index.
  // The caches, and among them the cache of the first heap, which ends before the set. Both are
  // NULL after the unload.
  std::unique_ptr<services::CacheSet> caches;
  std::unique_ptr<services::Cache, CacheRelease> cache;
  std::unique_ptr<services::PinnedMemory> pinned;  // NULL after the unload; ends before the caches.

  std::mutex prepared_mutex;
  std::vector<Prepared*> prepared;  // prepared_mutex guards it. The unload ends their plans.

  std::mutex captures_mutex;
  // captures_mutex guards both. The unload ends what they point to.
  std::vector<Capture*> captures;
  std::vector<CapturedGraph*> captured_graphs;

  // The streams for host fallbacks to this device that no call uses now, and the number of all such
  // streams. fallback_mutex guards both.
  std::mutex fallback_mutex;
  std::vector<bp_stream*> fallback_streams;
  size_t fallback_stream_count = 0;

  bool has_table(uint32_t type) const { return type < 64 && (table_mask >> type & 1) != 0; }
  const Plugin& owner() const { return *static_cast<const Plugin*>(plugin); }
  Plugin& own_plugin() { return const_cast<Plugin&>(owner()); }
};

struct Registry {
  bp_registry_flags flags = 0;
  std::string search_path;
  bool has_search_path = false;
  std::string layers, layer_options;
  bool has_layers = false, has_layer_options = false;
  LogSink log{};

  mutable std::mutex mutex;
  // `mutex` guards the members below.
  std::vector<std::unique_ptr<Plugin>> plugins;
  std::vector<std::unique_ptr<Plugin>> ended;
  std::vector<Target*> targets;  // The targets of `plugins`, in the same order.
  std::vector<std::unique_ptr<Manifest>> manifests;
  OwnedOps ops;                        // What the program has described.
  std::deque<std::string> op_reasons;  // Lent to the program.
  // What host_target() returns. It is read without the mutex.
  std::atomic<const bp_target*> host_target = nullptr;
};

inline Registry& impl(bp_registry* registry) { return *reinterpret_cast<Registry*>(registry); }
inline const Registry& impl(const bp_registry* registry) {
  return *reinterpret_cast<const Registry*>(registry);
}
inline bp_registry* face(Registry& registry) { return reinterpret_cast<bp_registry*>(&registry); }

// Returns the Target of a bp_target. Callers get a const pointer so that they do not change it, but
// the registry's own functions count and remember in it.
inline Target& impl(const bp_target* target) {
  return *static_cast<Target*>(const_cast<bp_target*>(target));
}

// Returns the first loaded device of class host, on which host fallbacks run, or NULL if there is
// none.
inline const bp_target* host_target(const bp_registry* registry) {
  return impl(registry).host_target.load(std::memory_order_acquire);
}

// Returns the status of the ABI that stands for a status of the backend's vendor.
inline bp_status classify(const Target& target, bp_status status) {
  const bp_backend* backend = target.owner().instance.backend();
  if (status >= 0 || backend == nullptr || backend->status_class == nullptr) return status;
  bp_status result = status;
  if (backend->status_class(backend->self, status, &result) != BP_OK) return status;
  return result;
}

// Returns the sources of kernels that the registry's flags allow for calls of `target`.
inline bp_kernel_sources allowed_sources(const Target& target) {
  if (target.is_compile_only) return BP_KERNEL_NATIVE;
  const bp_registry_flags flags = impl(target.registry).flags;
  bp_kernel_sources sources = BP_KERNEL_NATIVE;
  if ((flags & BP_REGISTRY_FORBID_DECOMPOSITION) == 0) sources |= BP_KERNEL_DECOMPOSED;
  if ((flags & BP_REGISTRY_FORBID_HOST_FALLBACK) == 0) sources |= BP_KERNEL_HOST_FALLBACK;
  return sources;
}

}  // namespace bp::core
