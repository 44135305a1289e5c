// Which plugins are loaded, and which of their devices ggml sees.
#include <string_view>

#include "device.h"
#include "log.h"

namespace bpg {
namespace {

constexpr const char* kPlugins = "BACKPLANE_GGML_PLUGINS";
constexpr const char* kOptions = "BACKPLANE_GGML_OPTIONS";

void pass_line(void*, bp_log_level level, const char* source, const char* message) {
  const std::string line = std::string(source) + ": " + message;
  if (level >= BP_LOG_ERROR) return log_error(line);
  if (level >= BP_LOG_WARNING) return log_warning(line);
  log_info(line);
}

bp_registry* new_registry() {
  bp_registry_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_REGISTRY_DESC;
  // What no kernel of the device serves belongs to ggml's CPU backend, whose scheduler is told.
  desc.flags = BP_REGISTRY_FORBID_HOST_FALLBACK;
  desc.log_line = &pass_line;
  bp_registry* registry = nullptr;
  check(bp_registry_create(&desc, &registry), "registry_create");
  return registry;
}

std::vector<std::string> parts_of(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view part = list.substr(0, comma);
    if (!part.empty()) parts.emplace_back(part);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return parts;
}

std::vector<std::string> plugins_of_manifests(bp_registry* registry) {
  std::vector<std::string> names;
  uint64_t count = 0;
  check(bp_registry_discover(registry, &count), "registry_discover");
  for (uint64_t i = 0; i < count; ++i) {
    const bp_manifest* manifest = nullptr;
    check(bp_registry_manifest(registry, i, &manifest), "registry_manifest");
    if (manifest->problem == nullptr) {
      names.emplace_back(manifest->name);
    } else {
      log_warning("the plugin of " + std::string(manifest->file) +
                  " cannot be used: " + manifest->problem);
    }
  }
  return names;
}

// Devices that the program did not ask for by name must be faster than ggml's own CPU backend.
bool is_worth_it(const bp_target* target) {
  const bp_device_class kind = target->properties->device_class;
  return kind != BP_DEVICE_HOST && kind != BP_DEVICE_SIMULATED;
}

// Options of the plugins that are named, as "threads=2,key=value".
struct Options {
  Options() {
    const char* const given = bp_environment(kOptions);
    if (given == nullptr) return;
    texts = parts_of(given);
    for (std::string& text : texts) {
      const size_t equals = text.find('=');
      if (equals == std::string::npos) {
        bp_error_clear();
        throw Failure(BP_INVALID_ARGUMENT, std::string(kOptions) + " has \"" + text +
                                               "\", which is not of the form key=value");
      }
      text[equals] = '\0';
      list.push_back({text.c_str(), text.c_str() + equals + 1});
    }
  }
  std::vector<std::string> texts;
  std::vector<bp_option> list;
};

void load(bp_registry* registry, const std::string& name, bool is_named) {
  static const Options options;
  const bp_plugin* plugin = nullptr;
  const bp_status status = bp_registry_load(
      registry, name.c_str(), is_named ? options.list.size() : 0, options.list.data(), &plugin);
  if (status != BP_OK) {
    const std::string text = failure_text(status, "the plugin " + name + " is not loaded");
    return is_named ? log_error(text) : log_warning(text);
  }
  uint64_t used = 0;
  for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
    const bp_target* target = bp_registry_target(registry, i);
    if (target->plugin != plugin || (!is_named && !is_worth_it(target))) continue;
    devices().push_back(std::make_unique<Device>(target));
    ++used;
  }
  if (used != 0) return;
  if (is_named) {
    log_error("the plugin " + name + " is loaded and finds no device on this machine");
  } else {
    bp_registry_unload(registry, plugin, UINT64_MAX);
  }
}

}  // namespace

std::vector<std::unique_ptr<Device>>& devices() {
  static auto* the_devices = new std::vector<std::unique_ptr<Device>>;
  return *the_devices;
}

void find_devices() {
  bp_registry* const registry = new_registry();
  const char* const named = bp_environment(kPlugins);
  const std::vector<std::string> names =
      named != nullptr ? parts_of(named) : plugins_of_manifests(registry);
  for (const std::string& name : names) load(registry, name, named != nullptr);
  if (!devices().empty()) return;
  if (named != nullptr) {
    log_error(std::string(kPlugins) + "=\"" + named +
              "\" gives no device. It is a list of paths of plugins, or of names in manifests, "
              "separated by commas");
  } else {
    log_warning(std::string("no plugin of an accelerator was found. ") + kPlugins +
                " names plugins, also those for the host's processors: paths, or names in "
                "manifests, separated by commas");
  }
}

}  // namespace bpg
