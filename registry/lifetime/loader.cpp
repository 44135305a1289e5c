#include "registry/lifetime/loader.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "registry/boundary/deadline.hpp"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/captures/captures.hpp"
#include "registry/dispatch/prepared.hpp"
#include "registry/lifetime/device_resets.hpp"
#include "registry/lifetime/program_memory.hpp"
#include "registry/lifetime/stream_ends.hpp"
#include "registry/plugins/backend_options.hpp"
#include "registry/plugins/registrar.hpp"

namespace bp::core {
namespace {

// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstProperties =
    offsetof(bp_device_properties, dlpack_device_id) + sizeof(int32_t);

constexpr uint32_t kFirstHeap = offsetof(bp_heap, reserved) + sizeof(bp_heap::reserved);

constexpr uint64_t kMaxHeaps = 64;  // A heap_mask has a bit for each.

// Returns a failure of the backend with the backend's own text.
bp_status failed(bp_status status, const std::string& what) {
  std::string words = take_error();
  if (words.empty()) words = bp_status_name(status);
  return fail(status, what + ": " + words);
}

// Returns what a device lacks before it can be a target, or "" if it is complete.
std::string missing_tables(const RegisteredDevice& device) {
  std::string missing;
  if (device.tables.allocator.struct_size == 0) missing += "no allocator ";
  if (device.tables.streams.struct_size == 0) missing += "no streams ";
  return missing;
}

// Rejects each heap and each dtype that this host cannot read or does not know, and says so in
// `refusals`. A heap leaves its place empty, because masks count on the places of the others. The
// first heap has been checked.
void reject_parts(Target& target, std::string& refusals) {
  layers::ShownProperties& shown = *target.own_properties;
  for (size_t i = 1; i < shown.heaps.size(); ++i) {
    const std::string defect = struct_defect(&shown.heaps[i], BP_STRUCT_HEAP, kFirstHeap);
    if (defect.empty()) continue;
    refusals += target.own_name + "/heap " + std::to_string(i) + ": rejected: " + defect + "\n";
    shown.heaps[i] = {};
  }
  std::erase_if(shown.dtypes, [&](bp_dtype dtype) {
    if (is_known_dtype(dtype)) return false;
    refusals += target.own_name + "/dtypes: rejected: dtype " + std::to_string(dtype) +
                " is not known to this host\n";
    return true;
  });
}

bp_status read_properties(Target& target, std::string& refusals) {
  const bp_device_properties* theirs = nullptr;
  const bp_device_ops& devices = target.own_tables.devices;
  const bp_status status = devices.properties(devices.self, target.device, &theirs);
  if (status != BP_OK) return failed(status, target.own_name + ": device.properties");
  if (theirs == nullptr) {
    return fail(BP_INTERNAL, target.own_name + ": device.properties returned BP_OK, but NULL");
  }
  const std::string defect = struct_defect(theirs, BP_STRUCT_DEVICE_PROPERTIES, kFirstProperties);
  if (!defect.empty()) return fail(BP_INTERNAL, target.own_name + ": its properties: " + defect);
  if (theirs->heap_count == 0 || theirs->heaps == nullptr) {
    return fail(BP_INTERNAL, target.own_name + ": its properties list no heap");
  }
  if (theirs->heap_count > kMaxHeaps) {
    return fail(BP_INTERNAL, target.own_name + ": its properties list " +
                                 std::to_string(theirs->heap_count) + " heaps; at most " +
                                 std::to_string(kMaxHeaps) + " are allowed");
  }
  const std::string heap_defect = struct_defect(theirs->heaps, BP_STRUCT_HEAP, kFirstHeap);
  if (!heap_defect.empty()) {
    return fail(BP_INTERNAL, target.own_name + ": its properties: heap 0: " + heap_defect);
  }
  target.own_properties = layers::copy_properties(*theirs);
  reject_parts(target, refusals);
  target.own_properties->seal();
  target.own_properties->properties.struct_size = sizeof(bp_device_properties);
  target.properties = &target.own_properties->properties;
  return BP_OK;
}

bp_status read_default_stream(Target& target) {
  const bp_stream_ops& streams = target.own_tables.streams;
  const bp_status status =
      streams.default_stream(streams.self, target.device, &target.default_stream);
  if (status != BP_OK) return failed(status, target.own_name + ": stream.default_stream");
  if (target.default_stream == nullptr) {
    return fail(BP_INTERNAL, target.own_name + ": stream.default_stream returned BP_OK, but NULL");
  }
  return BP_OK;
}

void add_kernels(const Registration& r, Target& target) {
  target.kernels.by_op.resize(op_rows().size());
  for (const auto& [kernel, devices] : r.kernels) {
    if (!devices.empty() && std::ranges::count(devices, target.device) == 0) continue;
    if (kernel->op == 0) {
      target.kernels.by_name[kernel->op_name].push_back(kernel);
    } else {
      target.kernels.by_op[find_op(kernel->op)->index].push_back(kernel);
    }
    target.kernels.all.push_back(kernel);
  }
  if (!target.has_table(BP_STRUCT_COMPILER_OPS)) return;
  target.compiled = std::make_unique<CompiledOps>(target.own_tables.compiler, target.device);
  if ((impl(target.registry).flags & BP_REGISTRY_COMPILE_OPS) == 0) {
    target.is_compile_only = target.kernels.all.empty();
    return;
  }
  target.kernels.compiled = target.compiled.get();
  for (const OpRow& row : op_rows()) {
    auto& kernels = target.kernels.by_op[row.index];
    if (kernels.empty()) kernels.push_back(target.compiled->kernel(row));
  }
}

void set_tables(Target& target) {
#define BP_TABLE(table, struct_type, last, member) target.member = &target.own_tables.member;
#include "registry/boundary/slots.def"
  if ((target.table_mask >> BP_STRUCT_PROCESS_GROUP_OPS & 1) == 0) return;
  target.groups.push_back(&target.own_tables.process_groups);
  for (bp_process_group_ops& more : target.own_tables.more_process_groups) {
    target.groups.push_back(&more);
  }
  for (bp_process_group_ops* groups : target.groups) {
    groups->name = target.group_names.emplace_back(groups->name).c_str();
  }
}

bp_status add_target(Plugin& plugin, Registration& r, uint64_t index) {
  const RegisteredDevice& device = r.devices[index];
  auto added = std::make_unique<Target>();
  Target& target = *added;
  target.own_name = plugin.own_name + ":" + std::to_string(index);
  if (const std::string missing = missing_tables(device); !missing.empty()) {
    return fail(BP_INTERNAL,
                target.own_name + ": its backend registered " + missing + "for it\n" + r.refusals);
  }
  target.own_tables = device.tables;
  target.table_mask = added_tables(target.own_tables);
  fill_absent_tables(target.own_tables);
  target.struct_size = sizeof(bp_target);
  target.struct_type = BP_STRUCT_TARGET;
  target.name = target.own_name.c_str();
  target.plugin = &plugin;
  target.registry = face(*plugin.owner);
  target.device = device.device;
  target.index = index;
  set_tables(target);
  bp_status status = read_properties(target, r.refusals);
  if (status == BP_OK) status = read_default_stream(target);
  if (status != BP_OK) return status;
  watch_stream_ends(target);
  watch_resets(target);
  watch_memory(target);
  add_kernels(r, target);
  target.counts = std::make_unique<DispatchCounts[]>(op_rows().size() + kMaxRuntimeOps);
  const bool has_graphs = target.has_table(BP_STRUCT_GRAPH_OPS);
  target.cache.reset(new services::Cache(target, has_graphs));
  target.caches = std::make_unique<services::CacheSet>(target, has_graphs, *target.cache);
  target.pinned = std::make_unique<services::PinnedMemory>(target, *target.caches);
  if (target.compiled != nullptr) {
    target.compiled->set_keep([&captures = target.caches->captures()](auto stream, auto program) {
      return captures.any() ? captures.keep(stream, std::move(program)) : bp_status{BP_OK};
    });
  }
  plugin.targets.push_back(std::move(added));
  return BP_OK;
}

bp_status register_tables(Plugin& plugin, Registration& r) {
  const bp_backend& backend = *plugin.instance.backend();
  r.name = plugin.own_name;
  const bp_registrar registrar = make_registrar(&r);
  const bp_status status = backend.register_all(backend.self, &registrar);
  if (status != BP_OK) return failed(status, plugin.own_name + ": register_all failed");
  if (r.devices.empty()) {
    const std::string line = plugin.services->last_line();
    return fail(BP_NOT_FOUND, plugin.own_name + ": found no device" +
                                  (line.empty() ? "" : "; its log says: " + line) +
                                  (r.refusals.empty() ? "" : "\n" + r.refusals));
  }
  for (uint64_t i = 0; i < r.devices.size(); ++i) {
    if (const bp_status added = add_target(plugin, r, i); added != BP_OK) return added;
  }
  return BP_OK;
}

void describe(Plugin& plugin, const Registration& r) {
  const bp_backend& backend = *plugin.instance.backend();
  plugin.own_version = clean_name(backend.version);
  plugin.own_refusals = r.refusals;
  plugin.struct_size = sizeof(bp_plugin);
  plugin.struct_type = BP_STRUCT_PLUGIN;
  plugin.name = plugin.own_name.c_str();
  plugin.version = plugin.own_version.c_str();
  plugin.path = plugin.own_path.c_str();
  plugin.refusals = plugin.own_refusals.c_str();
  plugin.abi_major = plugin.instance.abi_major();
  plugin.abi_minor = plugin.stack.shown_minor(plugin.instance.abi_minor());
  plugin.target_count = plugin.targets.size();
  plugin.kernel_count = r.kernels.size();
  plugin.layers = plugin.stack.names().c_str();
}

// Makes the layers that the registry's description names, or else those that the environment names.
bp_status make_layers(const Registry& registry, Plugin& plugin) {
  const bool ignores_environment = (registry.flags & BP_REGISTRY_IGNORE_ENVIRONMENT) != 0;
  const auto variable = [&](const char* name) {
    const char* value = ignores_environment ? nullptr : bp_environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  layers::Choice choice{registry.layers, registry.layer_options};
  if (!registry.has_layers) choice.layers = variable("BACKPLANE_LAYERS");
  if (!registry.has_layers && !registry.has_layer_options) {
    choice.options = variable("BACKPLANE_LAYER_OPTIONS");
  }
  return plugin.stack.make(choice, {.options = {},
                                    .log = registry.log,
                                    .search_path = registry.search_path,
                                    .has_search_path = registry.has_search_path,
                                    .ignores_environment = ignores_environment});
}

// Gathers the options of the program, then the options of the environment. The environment gives
// options by name, so a file that no manifest names gets only the program's options.
bp_status make_services(const Registry& registry, const Source& source, uint64_t option_count,
                        const bp_option* options, std::unique_ptr<HostServices>& out_services) {
  BackendOptions all;
  for (uint64_t i = 0; i < option_count; ++i) {
    all.emplace_back(options[i].key, options[i].value == nullptr ? "" : options[i].value);
  }
  const bool ignores_environment = (registry.flags & BP_REGISTRY_IGNORE_ENVIRONMENT) != 0;
  const char* more = ignores_environment ? nullptr : bp_environment("BACKPLANE_OPTIONS");
  if (more != nullptr && !source.expected_name.empty()) {
    const bp_status status = add_environment_options(more, source.expected_name, all);
    if (status != BP_OK) return status;
  }
  out_services = std::make_unique<HostServices>(registry.log, all);
  out_services->set_source(source.label);
  return BP_OK;
}

bool is_loaded(const Registry& registry, const std::string& name) {
  const std::lock_guard lock(registry.mutex);
  return std::ranges::count(registry.plugins, name, &Plugin::own_name) != 0;
}

}  // namespace

bp_status start_plugin(Registry& registry, const Source& source, uint64_t option_count,
                       const bp_option* options, std::unique_ptr<Plugin>& out_plugin) {
  auto plugin = std::make_unique<Plugin>();
  plugin->owner = &registry;
  plugin->own_path = source.path;
  bp_status status = make_services(registry, source, option_count, options, plugin->services);
  if (status != BP_OK) return status;
  const bp_host* host = plugin->services->table();
  status = make_layers(registry, *plugin);
  if (status != BP_OK) return status;
  status = source.entry == nullptr
               ? plugin->instance.open(source.path, host, plugin->stack)
               : plugin->instance.negotiate(source.label, source.entry, host, plugin->stack);
  if (status != BP_OK) return status;
  plugin->own_name = plugin->instance.backend()->name;
  plugin->services->set_source(plugin->own_name);
  if (!source.expected_name.empty() && source.expected_name != plugin->own_name) {
    return fail(BP_INCOMPATIBLE, source.label + ": its manifest says " + source.expected_name +
                                     ", the backend calls itself " + plugin->own_name);
  }
  if (is_loaded(registry, plugin->own_name)) {
    return fail(BP_ALREADY_EXISTS,
                plugin->own_name + ": a backend of this name is loaded already; unload it first");
  }
  Registration registration;
  status = register_tables(*plugin, registration);
  if (status != BP_OK) {
    // The text of register_tables() must outlive the text of shutdown().
    const std::string words = take_error();
    registration.ops.end();
    plugin->targets.clear();
    static_cast<void>(plugin->instance.end());
    return fail(status, words);
  }
  plugin->ops = std::move(registration.ops);
  describe(*plugin, registration);
  if (const std::string keys = plugin->services->unread_options(); !keys.empty()) {
    registry.log.line(
        BP_LOG_WARNING, plugin->own_name,
        "it did not ask for these options; check their names: " + keys.substr(0, keys.size() - 1));
  }
  out_plugin = std::move(plugin);
  return BP_OK;
}

namespace {

// Destroys the streams of host fallbacks. No fallback may be running.
void end_fallback_streams(Target& target) {
  const bp_stream_ops& streams = target.own_tables.streams;
  for (bp_stream* stream : target.fallback_streams) {
    static_cast<void>(streams.destroy(streams.self, stream));
  }
  target.fallback_streams.clear();
}

}  // namespace

bp_status wait_for_work(const Plugin& plugin, uint64_t timeout_ns) {
  if (timeout_ns == UINT64_MAX) return BP_OK;  // end_plugin() waits as long.
  const auto begin = std::chrono::steady_clock::now();
  for (const std::unique_ptr<Target>& target : plugin.targets) {
    const bp_device_ops& devices = target->own_tables.devices;
    const bp_status status =
        devices.synchronize(devices.self, target->device, left_ns(begin, timeout_ns));
    if (classify(*target, status) != BP_TIMEOUT) continue;
    return fail(BP_TIMEOUT, plugin.own_name + ": device.synchronize: " + take_error());
  }
  return BP_OK;
}

bp_status end_plugin(Plugin& plugin) {
  bp_status status = BP_OK;
  std::string words;
  const auto keep_first = [&](bp_status next, const std::string& what) {
    if (next == BP_OK || status != BP_OK) return;
    status = next;
    words = plugin.own_name + ": " + what + ": " + take_error();
  };
  for (const std::unique_ptr<Target>& target : plugin.targets) {
    const bp_device_ops& devices = target->own_tables.devices;
    abandon_captures(*target);
    const bp_status waited = devices.synchronize(devices.self, target->device, UINT64_MAX);
    // The work on a lost device has ended, and the end of a lost device is no failure.
    if (classify(*target, waited) != BP_DEVICE_LOST) keep_first(waited, "device.synchronize");
    end_captured_graphs(*target);
    end_prepared(*target);
    target->kernels.compiled = nullptr;
    target->compiled.reset();
    end_fallback_streams(*target);
    target->pinned.reset();
    keep_first(target->caches->release(), "memory.deallocate");
    keep_first(services::Cache::release(target->cache.release()), "memory.deallocate");
    target->caches.reset();
  }
  plugin.ops.end();
  for (const std::unique_ptr<Target>& target : plugin.targets) {
    end_tables(target->own_tables);
    target->own_properties->end_links();
    target->kernels = {};
  }
  keep_first(plugin.instance.end(), "shutdown");
  const HostServices& services = *plugin.services;
  if (services.allocation_count() != 0) {
    plugin.owner->log.line(BP_LOG_WARNING, plugin.own_name,
                           std::to_string(services.allocation_count()) +
                               " allocations of host memory were not freed, " +
                               std::to_string(services.allocated_bytes()) + " bytes");
  }
  return status == BP_OK ? BP_OK : fail(status, words);
}

}  // namespace bp::core
