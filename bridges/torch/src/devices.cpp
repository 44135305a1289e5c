#include "devices.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <memory>
#include <mutex>

#include "backplane/pinned.h"
#include "streams.h"

namespace bpt {
namespace {

constexpr size_t kMaxDevices = 64;

struct State {
  std::mutex mutex;
  bp_registry* registry = nullptr;
  std::array<Device, kMaxDevices> devices;
  std::atomic<c10::DeviceIndex> count{0};
  std::atomic<bool> is_closed{false};
  std::atomic<bool> is_child{false};
};

// It is never destroyed, because tensors may be freed after static objects are.
State& state() {
  static auto* the_state = new State;
  return *the_state;
}

void log_line(void*, bp_log_level level, const char* source, const char* message) {
  if (level >= BP_LOG_ERROR) {
    TORCH_WARN_ONCE("torch_backplane: ", source, ": ", message);
  }
}

void make_registry(State& s) {
  if (s.registry != nullptr) return;
  bp_registry_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_REGISTRY_DESC;
  // What no kernel of the device serves is PyTorch's to compute, where it is counted.
  desc.flags = BP_REGISTRY_FORBID_HOST_FALLBACK;
  desc.log_line = &log_line;
  check(bp_registry_create(&desc, &s.registry), "registry_create");
  pthread_atfork(nullptr, nullptr, [] { state().is_child = true; });
}

const bp_plugin* find_plugin(const State& s, const std::string& name) {
  for (uint64_t i = 0; i < bp_registry_plugin_count(s.registry); ++i) {
    const bp_plugin* plugin = bp_registry_plugin(s.registry, i);
    const std::string whole = plugin->name;
    if (name == whole || name == plugin->path) return plugin;
    const size_t dot = whole.find('.');
    if (dot != std::string::npos && name == whole.substr(dot + 1)) return plugin;
  }
  return nullptr;
}

int first_device_of(const State& s, const bp_plugin* plugin) {
  for (int i = 0; i < s.count; ++i) {
    if (s.devices[i].target->plugin == plugin) return i;
  }
  return -1;
}

}  // namespace

std::pair<int, int> load(const std::string& name,
                         const std::vector<std::pair<std::string, std::string>>& options) {
  State& s = state();
  TORCH_CHECK(!s.is_child,
              "torch_backplane: a plugin cannot be loaded in a child of fork(); start ",
              "the process with the multiprocessing method 'spawn'.");
  const std::lock_guard lock(s.mutex);
  make_registry(s);
  const bp_plugin* plugin = find_plugin(s, name);
  if (plugin == nullptr) {
    std::vector<bp_option> list;
    for (const auto& [key, value] : options) list.push_back({key.c_str(), value.c_str()});
    check(bp_registry_load(s.registry, name.c_str(), list.size(), list.data(), &plugin), "load");
    const uint64_t all = bp_registry_target_count(s.registry);
    for (uint64_t i = 0; i < all; ++i) {
      const bp_target* target = bp_registry_target(s.registry, i);
      if (target->plugin != plugin) continue;
      TORCH_CHECK(s.count < static_cast<int>(kMaxDevices), "torch_backplane: at most ", kMaxDevices,
                  " devices can be used in one process.");
      s.devices[s.count].target = target;
      ++s.count;
    }
  }
  TORCH_CHECK(plugin->target_count != 0, "torch_backplane: the plugin ", plugin->name, " (",
              plugin->path, ") was loaded and finds no device on this machine.");
  return {first_device_of(s, plugin), static_cast<int>(plugin->target_count)};
}

c10::DeviceIndex device_count() noexcept { return state().count; }

Device& device_at(c10::DeviceIndex index) {
  State& s = state();
  TORCH_CHECK(index >= 0 && index < s.count,
              "torch_backplane: there is no device bp:", static_cast<int>(index), "; ",
              static_cast<int>(s.count),
              " are loaded. torch_backplane.load() loads a plugin and adds its devices.");
  return s.devices[index];
}

const bp_target* target_of(const c10::Device& device) {
  return device_at(device.has_index() ? device.index() : current_device()).target;
}

bool is_open() noexcept { return !state().is_closed && !state().is_child; }
bool is_in_child() noexcept { return state().is_child; }

void require_open() {
  if (C10_LIKELY(is_open())) return;
  TORCH_CHECK(!state().is_child, "torch_backplane: this process is a child of fork(), and the ",
              "devices belong to its parent. Start it with the multiprocessing method 'spawn', or ",
              "use tensors of the CPU in it, as the workers of a DataLoader should.");
  TORCH_CHECK(false,
              "torch_backplane: the plugins were unloaded at the end of the interpreter, and ",
              "their devices cannot be used any more.");
}

std::vector<std::string> close_all(uint64_t timeout_ns) {
  State& s = state();
  std::vector<std::string> busy;
  if (s.is_child || s.is_closed || s.registry == nullptr) return busy;
  const std::lock_guard lock(s.mutex);
  s.is_closed = true;
  for (uint64_t i = bp_registry_plugin_count(s.registry); i-- > 0;) {
    const bp_plugin* plugin = bp_registry_plugin(s.registry, i);
    const std::string name = plugin->name;
    const bp_status status = bp_registry_unload(s.registry, plugin, timeout_ns);
    // Whoever used a device that was lost has been told so.
    if (status == BP_OK || status == BP_DEVICE_LOST) continue;
    busy.push_back(name + ": " + bp_status_name(status) + ": " + bp_error_text());
  }
  // The registry is left alone: the blocks of tensors that are freed later still belong to it.
  return busy;
}

void raise(bp_status status, const char* call) {
  const std::string text =
      c10::str("backplane: ", call, ": ", bp_status_name(status), ": ", bp_error_text());
  switch (status) {
    case BP_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case BP_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case BP_DATA_FAILURE:
    case BP_STREAM_FAILED:
    case BP_DEVICE_LOST:
    case BP_ABORTED:
      throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, status,
                                  text);
    default:
      TORCH_CHECK(false, text);
  }
}

void raise_failure_of(const bp_target* target, bp_stream* stream, bp_status status,
                      const char* call) {
  // The failure itself says more than "the stream has failed before".
  const bp_status first = target->streams->status(target->streams->self, stream);
  const bp_status told = first == BP_OK ? status : first;
  const std::string text = bp_error_text();
  target->streams->clear_failure(target->streams->self, stream);
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, told,
      c10::str("backplane: ", call, " on ", target->name, ": ", bp_status_name(told), ": ", text));
}

}  // namespace bpt
