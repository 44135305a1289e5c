#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string_view>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/lifetime/forks.hpp"
#include "registry/lifetime/loader.hpp"
#include "registry/state/state.hpp"

namespace bp::core {
namespace {

// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstDesc = offsetof(bp_registry_desc, user_data) + sizeof(void*);

constexpr bp_registry_flags kKnownFlags = BP_REGISTRY_FORBID_HOST_FALLBACK |
                                          BP_REGISTRY_FORBID_DECOMPOSITION |
                                          BP_REGISTRY_COMPILE_OPS | BP_REGISTRY_IGNORE_ENVIRONMENT;

bp_status read_desc(const bp_registry_desc* theirs, bp_registry_desc& ours) {
  uint32_t offset = 0;
  const std::string defect = struct_defect(theirs, BP_STRUCT_REGISTRY_DESC, kFirstDesc);
  if (!defect.empty()) return fail(BP_INCOMPATIBLE, "bp_registry_desc: " + defect);
  if (bp_struct_read(theirs, kFirstDesc, &ours, sizeof(ours), &offset) != BP_OK) {
    return fail(BP_INCOMPATIBLE, "bp_registry_desc: byte " + std::to_string(offset) +
                                     " is not zero, and this host does not know it");
  }
  if ((ours.flags & ~kKnownFlags) != 0) {
    return fail(BP_INVALID_ARGUMENT, "bp_registry_desc: flags are " + std::to_string(ours.flags) +
                                         ", known bits are " + std::to_string(kKnownFlags));
  }
  const auto text = [](const char* given) { return std::string(given == nullptr ? "" : given); };
  return ours.layers == nullptr
             ? BP_OK
             : layers::check_choice({text(ours.layers), text(ours.layer_options)});
}

Manifests find_manifests(const Registry& registry) {
  return discover(
      effective_search_path(registry.has_search_path ? registry.search_path.c_str() : nullptr,
                            (registry.flags & BP_REGISTRY_IGNORE_ENVIRONMENT) == 0));
}

// Returns the name behind the last dot, such as "npu" for "acme.npu".
std::string_view last_part(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// Returns text like "known are a, b" for the text of a failure.
template <typename Range, typename Name>
std::string list(const char* what, const Range& range, Name&& name) {
  std::string names;
  for (const auto& item : range) names += (names.empty() ? "" : ", ") + std::string(name(*item));
  return names.empty() ? std::string("none is ") + what : std::string(what) + " are " + names;
}

bp_status source_of_path(const std::string& name, Source& source) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(name, error);
  source.label = name;
  source.path = path.lexically_normal().string();
  return BP_OK;
}

bp_status source_of_name(const Registry& registry, const std::string& name, Source& source) {
  const Manifests manifests = find_manifests(registry);
  std::vector<const Manifest*> found;
  for (const auto& m : manifests) {
    if (m->own_name == name && m->problem == nullptr) {
      found = {m.get()};
      break;
    }
    if (m->own_name == name || last_part(m->own_name) == name) found.push_back(m.get());
  }
  if (found.size() > 1) std::erase_if(found, [](const Manifest* m) { return m->problem; });
  const auto name_of = [](const Manifest& m) {
    return m.own_name.empty() ? m.own_file + " (" + m.own_problem + ")" : m.own_name;
  };
  if (found.empty()) {
    return fail(BP_NOT_FOUND,
                name + ": no manifest has this name; " + list("found", manifests, name_of));
  }
  if (found.size() > 1) {
    return fail(BP_NOT_FOUND, name + ": the name fits several backends; " +
                                  list("found", found, name_of) + "; give the full name");
  }
  const Manifest& m = *found.front();
  if (m.problem != nullptr) {
    return fail(BP_NOT_FOUND, name + ": its manifest " + m.file + " cannot be used: " + m.problem);
  }
  source = {m.own_name, m.entry == nullptr ? m.own_library : m.own_file, m.own_name, m.entry};
  return BP_OK;
}

// Finds the host device, and forgets remembered choices, after a plugin came or went.
void refresh_locked(Registry& registry) {
  registry.targets.clear();
  const bp_target* host = nullptr;
  for (const auto& plugin : registry.plugins) {
    for (const auto& target : plugin->targets) {
      registry.targets.push_back(target.get());
      if (host == nullptr && target->properties->device_class == BP_DEVICE_HOST) {
        host = target.get();
      }
    }
  }
  registry.host_target.store(host, std::memory_order_release);
  for (Target* target : registry.targets) target->selection.clear();
}

bp_status add_plugin(Registry& registry, std::unique_ptr<Plugin> plugin,
                     const bp_plugin** out_plugin) {
  {
    const std::lock_guard lock(registry.mutex);
    if (std::ranges::count(registry.plugins, plugin->own_name, &Plugin::own_name) == 0) {
      *out_plugin = plugin.get();
      registry.plugins.push_back(std::move(plugin));
      refresh_locked(registry);
      return BP_OK;
    }
  }
  // Another thread has loaded the backend first.
  static_cast<void>(end_plugin(*plugin));
  return fail(BP_ALREADY_EXISTS,
              plugin->own_name + ": a backend of this name is loaded already; unload it first");
}

// Returns the place of a plugin in the registry, or the end. The caller holds the lock.
auto find_locked(Registry& registry, const bp_plugin* plugin) {
  return std::ranges::find(registry.plugins, plugin, &std::unique_ptr<Plugin>::get);
}

bp_status unload(Registry& registry, const bp_plugin* plugin, uint64_t timeout_ns) {
  const auto is_unknown = [] {
    return fail(BP_NOT_FOUND, "plugin is not loaded in this registry");
  };
  Plugin* ending = nullptr;
  {
    const std::lock_guard lock(registry.mutex);
    const auto found = find_locked(registry, plugin);
    if (found == registry.plugins.end()) return is_unknown();
    ending = found->get();
  }
  if (const bp_status status = wait_for_work(*ending, timeout_ns); status != BP_OK) return status;
  {
    const std::lock_guard lock(registry.mutex);
    const auto found = find_locked(registry, plugin);
    if (found == registry.plugins.end()) return is_unknown();
    registry.ended.push_back(std::move(*found));
    registry.plugins.erase(found);
    refresh_locked(registry);
  }
  return end_plugin(*ending);
}

// Returns whether `name` fits a target. "acme.npu:0" and "npu:0" fit one device, and "acme.npu" and
// "npu" fit all devices of the backend.
bool is_called(const Target& target, std::string_view name) {
  const std::string_view full = target.own_name;
  const std::string_view plugin = target.owner().own_name;
  const std::string_view index = full.substr(plugin.size());
  return name == full || name == plugin || name == last_part(plugin) ||
         name == std::string(last_part(plugin)) + std::string(index);
}

}  // namespace

bp_status load_source(Registry& registry, const Source& source, uint64_t option_count,
                      const bp_option* options, const bp_plugin** out_plugin) {
  std::unique_ptr<Plugin> plugin;
  bp_status status = start_plugin(registry, source, option_count, options, plugin);
  if (status != BP_OK) return status;
  const bp_plugin* added = nullptr;
  status = add_plugin(registry, std::move(plugin), &added);
  if (status == BP_OK && out_plugin != nullptr) *out_plugin = added;
  return status;
}

}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;
using bp::fail;
using bp::is_null;

bp_status bp_registry_create(const bp_registry_desc* desc, bp_registry** out_registry) {
  return guarded([&]() -> bp_status {
    if (out_registry == nullptr) return is_null("out_registry");
    bp_registry_desc ours{};
    if (desc != nullptr) {
      if (const bp_status status = read_desc(desc, ours); status != BP_OK) return status;
    }
    auto registry = std::make_unique<Registry>();
    registry->flags = ours.flags;
    registry->log = {ours.log_line, ours.user_data};
    registry->has_search_path = ours.search_path != nullptr;
    if (ours.search_path != nullptr) registry->search_path = ours.search_path;
    registry->has_layers = ours.layers != nullptr;
    if (ours.layers != nullptr) registry->layers = ours.layers;
    registry->has_layer_options = ours.layer_options != nullptr;
    if (ours.layer_options != nullptr) registry->layer_options = ours.layer_options;
    if (const bp_status status = watch_forks(*registry); status != BP_OK) return status;
    *out_registry = face(*registry.release());
    return BP_OK;
  });
}

bp_status bp_registry_destroy(bp_registry* registry) {
  if (registry == nullptr) return BP_OK;
  return guarded([&] {
    const std::unique_ptr<Registry> owned(&impl(registry));
    bp_status status = BP_OK;
    while (!owned->plugins.empty()) {
      const bp_status next = unload(*owned, owned->plugins.back().get(), UINT64_MAX);
      if (status == BP_OK) status = next;
    }
    forget_forks(*owned);
    return status;
  });
}

bp_status bp_registry_discover(bp_registry* registry, uint64_t* out_count) {
  return guarded([&]() -> bp_status {
    if (registry == nullptr) return is_null("registry");
    Manifests manifests = find_manifests(impl(registry));
    const std::lock_guard lock(impl(registry).mutex);
    impl(registry).manifests = std::move(manifests);
    if (out_count != nullptr) *out_count = impl(registry).manifests.size();
    return BP_OK;
  });
}

bp_status bp_registry_manifest(const bp_registry* registry, uint64_t index,
                               const bp_manifest** out_manifest) {
  return guarded([&]() -> bp_status {
    if (registry == nullptr) return is_null("registry");
    if (out_manifest == nullptr) return is_null("out_manifest");
    const std::lock_guard lock(impl(registry).mutex);
    const Manifests& manifests = impl(registry).manifests;
    if (index >= manifests.size()) {
      return fail(BP_NOT_FOUND, "manifest: index is " + std::to_string(index) +
                                    "; allowed: below " + std::to_string(manifests.size()) +
                                    ", the number of manifests that were found");
    }
    *out_manifest = manifests[index].get();
    return BP_OK;
  });
}

bp_status bp_registry_load(bp_registry* registry, const char* name, uint64_t option_count,
                           const bp_option* options, const bp_plugin** out_plugin) {
  return guarded([&]() -> bp_status {
    if (registry == nullptr) return is_null("registry");
    if (name == nullptr) return is_null("name");
    if (option_count != 0 && options == nullptr) return is_null("options");
    for (uint64_t i = 0; i < option_count; ++i) {
      if (options[i].key == nullptr) return is_null("options: a key");
    }
    const std::string_view text(name);
    const bool is_path = text.find('/') != text.npos || text.ends_with(".so");
    Source source;
    const bp_status status =
        is_path ? source_of_path(name, source) : source_of_name(impl(registry), name, source);
    if (status != BP_OK) return status;
    return load_source(impl(registry), source, option_count, options, out_plugin);
  });
}

bp_status bp_registry_unload(bp_registry* registry, const bp_plugin* plugin, uint64_t timeout_ns) {
  return guarded([&]() -> bp_status {
    if (registry == nullptr) return is_null("registry");
    if (plugin == nullptr) return is_null("plugin");
    return unload(impl(registry), plugin, timeout_ns);
  });
}

// NOLINTNEXTLINE(readability-function-size): host.h has these arguments.
bp_status bp_registry_add_ops(bp_registry* registry, uint64_t op_count, const bp_op_desc* ops,
                              uint64_t stride_bytes, uint32_t* out_ops,
                              bp_add_result* out_results) {
  return guarded([&]() -> bp_status {
    if (registry == nullptr) return is_null("registry");
    Registry& r = impl(registry);
    const std::lock_guard lock(r.mutex);
    const bp_status status = add_described_ops(
        r.ops, {op_count, ops, stride_bytes}, out_ops,
        [&](uint64_t i, const std::string&, const std::string& refusal) {
          if (out_results == nullptr) return;
          out_results[i] = {BP_ADD_ACCEPTED, 0, nullptr};
          if (refusal.empty()) return;
          out_results[i] = {BP_ADD_REJECTED, 0, r.op_reasons.emplace_back(refusal).c_str()};
        });
    // A kernel may have named one of these ops before.
    for (Target* target : r.targets) target->selection.clear();
    return status;
  });
}

uint64_t bp_registry_plugin_count(const bp_registry* registry) {
  if (registry == nullptr) return 0;
  const std::lock_guard lock(impl(registry).mutex);
  return impl(registry).plugins.size();
}

bp_status bp_plugin_layer_reports(const bp_plugin* plugin, const char* layer, uint64_t* out_count) {
  return guarded([&]() -> bp_status {
    if (plugin == nullptr) return is_null("plugin");
    if (layer == nullptr) return is_null("layer");
    if (out_count == nullptr) return is_null("out_count");
    const auto& stack = static_cast<const Plugin*>(plugin)->stack;
    const bp::layers::Layer* found = stack.find(layer);
    if (found == nullptr) {
      return fail(BP_NOT_FOUND,
                  std::string(plugin->name) + ": it has no layer '" + layer +
                      "'; its layers are: " + (stack.names().empty() ? "none" : stack.names()));
    }
    *out_count = found->report_count();
    return BP_OK;
  });
}

const bp_plugin* bp_registry_plugin(const bp_registry* registry, uint64_t index) {
  if (registry == nullptr) return nullptr;
  const std::lock_guard lock(impl(registry).mutex);
  const auto& plugins = impl(registry).plugins;
  return index < plugins.size() ? plugins[index].get() : nullptr;
}

uint64_t bp_registry_target_count(const bp_registry* registry) {
  if (registry == nullptr) return 0;
  const std::lock_guard lock(impl(registry).mutex);
  return impl(registry).targets.size();
}

const bp_target* bp_registry_target(const bp_registry* registry, uint64_t index) {
  if (registry == nullptr) return nullptr;
  const std::lock_guard lock(impl(registry).mutex);
  const auto& targets = impl(registry).targets;
  return index < targets.size() ? targets[index] : nullptr;
}

bp_status bp_registry_find_target(const bp_registry* registry, const char* name,
                                  const bp_target** out_target) {
  return guarded([&]() -> bp_status {
    if (registry == nullptr) return is_null("registry");
    if (name == nullptr) return is_null("name");
    if (out_target == nullptr) return is_null("out_target");
    const std::lock_guard lock(impl(registry).mutex);
    std::vector<const Target*> found;
    for (const Target* target : impl(registry).targets) {
      if (is_called(*target, name)) found.push_back(target);
    }
    const auto name_of = [](const Target& target) { return target.own_name; };
    if (found.empty()) {
      return fail(BP_NOT_FOUND, std::string(name) + ": no such device; " +
                                    list("loaded", impl(registry).targets, name_of));
    }
    // The name of a backend without an index means its first device.
    const auto is_of_another = [&](const Target* t) { return &t->owner() != &found[0]->owner(); };
    if (std::ranges::any_of(found, is_of_another)) {
      return fail(BP_NOT_FOUND, std::string(name) +
                                    ": the name fits devices of several backends; " +
                                    list("loaded", found, name_of) + "; give the full name");
    }
    *out_target = found.front();
    return BP_OK;
  });
}

uint64_t bp_target_process_groups_count(const bp_target* target) {
  return target == nullptr ? 0 : impl(target).groups.size();
}

const bp_process_group_ops* bp_target_process_groups(const bp_target* target, uint64_t index) {
  if (index >= bp_target_process_groups_count(target)) return nullptr;
  return impl(target).groups[index];
}

bp_status bp_target_find_process_groups(const bp_target* target, const char* name,
                                        const bp_process_group_ops** out_process_groups) {
  return guarded([&]() -> bp_status {
    if (target == nullptr) return is_null("target");
    if (out_process_groups == nullptr) return is_null("out_process_groups");
    const bp_process_group_ops* found = target->process_groups;
    if (const std::string_view wanted(name == nullptr ? "" : name); !wanted.empty()) {
      const auto& groups = impl(target).groups;
      const auto at = std::ranges::find(groups, wanted, &bp_process_group_ops::name);
      if (at == groups.end()) {
        return fail(BP_NOT_FOUND,
                    std::string(target->name) + ": it has no process groups \"" + name + "\"; " +
                        list("offered", groups, [](const auto& ops) { return ops.name; }));
      }
      found = *at;
    }
    *out_process_groups = found;
    return BP_OK;
  });
}

uint32_t bp_target_has_table(const bp_target* target, uint32_t struct_type) {
  return target != nullptr && impl(target).has_table(struct_type) ? 1 : 0;
}

uint64_t bp_target_kernel_count(const bp_target* target) {
  return target == nullptr ? 0 : impl(target).kernels.all.size();
}

const bp_kernel* bp_target_kernel(const bp_target* target, uint64_t index) {
  if (index >= bp_target_kernel_count(target)) return nullptr;
  return impl(target).kernels.all[index];
}
