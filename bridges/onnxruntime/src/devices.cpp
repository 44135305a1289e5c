#include "devices.hpp"

#include <sstream>
#include <string>

#include "backplane/runtime/error.hpp"

namespace bpo {
namespace {

std::vector<std::string> split(const char* list) {
  std::vector<std::string> names;
  std::stringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    const size_t begin = name.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    names.push_back(name.substr(begin, name.find_last_not_of(' ') - begin + 1));
  }
  return names;
}

std::vector<std::string> names_of_manifests(bp_registry* registry,
                                            const std::function<void(const std::string&)>& warn) {
  uint64_t count = 0;
  bp::check(bp_registry_discover(registry, &count), "registry.discover");
  std::vector<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    const bp_manifest* manifest = nullptr;
    bp::check(bp_registry_manifest(registry, i, &manifest), "registry.manifest");
    if (manifest->problem == nullptr) {
      names.emplace_back(manifest->name);
    } else {
      warn(std::string(manifest->file) + ": " + manifest->problem);
    }
  }
  return names;
}

// Returns the loaded plugin of a name or path, or NULL.
const bp_plugin* find_plugin(const bp_registry* registry, const std::string& name) {
  for (uint64_t i = 0; i < bp_registry_plugin_count(registry); ++i) {
    const bp_plugin* const plugin = bp_registry_plugin(registry, i);
    const std::string full = plugin->name;
    if (full == name || full.substr(full.find('.') + 1) == name || plugin->path == name) {
      return plugin;
    }
  }
  return nullptr;
}

bp_status load(bp_registry* registry, const std::string& name, const bp_plugin*& plugin) {
  plugin = find_plugin(registry, name);
  if (plugin != nullptr) return BP_OK;
  return bp_registry_load(registry, name.c_str(), 0, nullptr, &plugin);
}

void add_devices(const bp_registry* registry, const bp_plugin* plugin,
                 std::vector<bp::Device>& devices) {
  for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
    const bp_target* const target = bp_registry_target(registry, i);
    if (target->plugin == plugin) devices.emplace_back(*target);
  }
}

bool has_host_device(const bp_registry* registry) {
  for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
    const bp_target* const target = bp_registry_target(registry, i);
    if (target->properties->device_class == BP_DEVICE_HOST) return true;
  }
  return false;
}

// A plugin that cannot be loaded is no reason to refuse those that the user has named.
void load_host_device(bp_registry* registry) {
  const auto ignore = [](const std::string&) {};
  for (const std::string& name : names_of_manifests(registry, ignore)) {
    if (has_host_device(registry)) return;
    const bp_plugin* plugin = nullptr;
    load(registry, name, plugin);
  }
}

}  // namespace

std::vector<bp::Device> find_devices(const std::function<void(const std::string&)>& warn) {
  bp_registry* const registry = bp::default_registry();
  const char* const list = bp_environment("BACKPLANE_ORT_PLUGINS");
  std::vector<bp::Device> devices;
  for (const std::string& name : list ? split(list) : names_of_manifests(registry, warn)) {
    const bp_plugin* plugin = nullptr;
    const bp_status status = load(registry, name, plugin);
    if (status == BP_OK) {
      add_devices(registry, plugin, devices);
    } else if (list != nullptr) {
      throw bp::Error(status, "BACKPLANE_ORT_PLUGINS: plugin '" + name + "': " + bp_error_text());
    } else {
      warn("plugin '" + name + "' is passed over: " + bp_error_text());
    }
  }
  load_host_device(registry);
  return devices;
}

bp::Device device_of_name(const char* name) {
  const bp_target* target = nullptr;
  bp::check(bp_registry_find_target(bp::default_registry(), name, &target), "device");
  return bp::Device(*target);
}

}  // namespace bpo
