#include "backplane/runtime/device.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backplane/runtime/error.hpp"
#include "backplane/runtime/tensor.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace {

constexpr uint64_t kFirstSeed = 0;

constinit thread_local const bp_target* current_target = nullptr;

// The generators of all devices. Like the registry, they are never destroyed.
struct Generators {
  std::mutex mutex;
  uint64_t seed = kFirstSeed;
  std::map<const bp_target*, std::unique_ptr<Generator>> by_target;

  static Generators& get() {
    static auto* const generators = new Generators;
    return *generators;
  }
};

// Returns the ids of all ops of this build.
std::vector<uint32_t> all_ops() {
  return {
#define BP_OP(id, name, since, profile, kind, numerics) id,
#define BP_ARG(op, member, kind, dtype)
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  };
}

bool has_host_device(const bp_registry* registry) {
  for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
    if (bp_registry_target(registry, i)->properties->device_class == BP_DEVICE_HOST) return true;
  }
  return false;
}

// Loads the backends that are found, in their order, until one brings a device of class host. Ops
// that another device has no kernel for run there. A backend that cannot be loaded is no reason to
// refuse a device that works without it: the text of the failure stays in the error slot, and an op
// that needs a host device reports that there is none.
void load_host_device(bp_registry* registry) {
  if (has_host_device(registry)) return;
  uint64_t count = 0;
  check(bp_registry_discover(registry, &count), "registry.discover");
  std::vector<std::string> names;  // Copied, since a load may read the manifests again.
  for (uint64_t i = 0; i < count; ++i) {
    const bp_manifest* manifest = nullptr;
    check(bp_registry_manifest(registry, i, &manifest), "registry.manifest");
    if (manifest->problem == nullptr) names.emplace_back(manifest->name);
  }
  for (const std::string& name : names) {
    const bp_plugin* plugin = nullptr;
    const bp_status status = bp_registry_load(registry, name.c_str(), 0, nullptr, &plugin);
    if (status == BP_OK && has_host_device(registry)) return;
  }
}

// The first is BP_LOG_DEBUG.
constexpr const char* kLevels[] = {"debug", "info", "warning", "error"};

// Returns the level that BACKPLANE_LOG names, from debug to error. If it names none, warnings are
// printed: a warning of a backend or a layer, such as about an unknown option or a leak, must reach
// somebody.
bp_log_level read_threshold() {
  const char* text = bp_environment("BACKPLANE_LOG");
  if (text == nullptr) return BP_LOG_WARNING;
  const auto* const level = std::ranges::find(kLevels, std::string_view(text));
  if (level != std::end(kLevels)) return static_cast<bp_log_level>(level - kLevels + BP_LOG_DEBUG);
  std::fprintf(stderr,
               "warning: BACKPLANE_LOG is '%s'; allowed are debug, info, warning and error: from "
               "warnings on is shown\n",
               text);
  return BP_LOG_WARNING;
}

bp_log_level log_threshold() {
  static const bp_log_level threshold = read_threshold();
  return threshold;
}

void print_line(void*, bp_log_level level, const char* source, const char* message) {
  if (level < log_threshold()) return;
  const bp_log_level known = std::clamp<bp_log_level>(level, BP_LOG_DEBUG, BP_LOG_ERROR);
  std::fprintf(stderr, "%s: %s: %s\n", kLevels[known - BP_LOG_DEBUG], source, message);
}

const bp_target& find_device(std::string_view name) {
  static auto* const mutex = new std::mutex;  // Two threads must not load one backend twice.
  const std::lock_guard lock(*mutex);
  bp_registry* registry = default_registry();
  const std::string full(name);
  const bp_target* target = nullptr;
  bp_status status = bp_registry_find_target(registry, full.c_str(), &target);
  if (status == BP_NOT_FOUND) {
    const bp_plugin* plugin = nullptr;
    status =
        bp_registry_load(registry, full.substr(0, full.find(':')).c_str(), 0, nullptr, &plugin);
    if (status == BP_ALREADY_EXISTS) status = BP_OK;  // The backend lacks this device.
    if (status == BP_OK) status = bp_registry_find_target(registry, full.c_str(), &target);
    if (status == BP_OK) load_host_device(registry);
  }
  if (status != BP_OK) {
    throw Error(status, "device '" + full + "': " + bp_error_text());
  }
  return *target;
}

// Returns a line for each reason why calls of `op` were served in another way than by kernels of
// the device alone.
std::string reasons_of(const bp_target& target, uint32_t op) {
  std::string text;
  for (uint64_t i = 0; i < bp_target_reason_count(&target); ++i) {
    bp_dispatch_reason reason{};
    reason.struct_size = sizeof(reason);
    reason.struct_type = BP_STRUCT_DISPATCH_REASON;
    check(bp_target_reason(&target, i, &reason), "target.reason");
    if (reason.op != op) continue;
    text += "\n    " + std::to_string(reason.call_count) + " launches: ";
    for (const char c : std::string_view(reason.text)) {
      text += c;
      if (c == '\n') text += "    ";
    }
  }
  return text;
}

}  // namespace

bp_registry* default_registry() {
  static bp_registry* const registry = [] {
    // An invalid level is reported also if nothing is logged.
    log_threshold();
    const bp_registry_desc desc{.struct_size = sizeof(bp_registry_desc),
                                .struct_type = BP_STRUCT_REGISTRY_DESC,
                                .flags = BP_REGISTRY_COMPILE_OPS,
                                .log_line = print_line};
    bp_registry* made = nullptr;
    check(bp_registry_create(&desc, &made), "registry.create");
    return made;
  }();
  return registry;
}

void Generator::set_seed(uint64_t seed, uint64_t offset) {
  const std::lock_guard lock(mutex_);
  seed_ = seed;
  offset_ = offset;
  seed_tensor_ = nullptr;
}

void Generator::set_seed(const Tensor& seed) {
  if (seed.dtype() != BP_U64 || seed.numel() != 1) {
    detail::fail("Generator::set_seed: the seed is " + detail::describe(seed) +
                 "; allowed: one element of u64");
  }
  auto kept = std::make_shared<const Tensor>(seed);
  const std::lock_guard lock(mutex_);
  seed_ = 0;
  offset_ = 0;
  seed_tensor_ = std::move(kept);
}

Generator::Range Generator::state() const {
  const std::lock_guard lock(mutex_);
  return {seed_, offset_, seed_tensor_};
}

Generator::Range Generator::take(uint64_t block_count) {
  const std::lock_guard lock(mutex_);
  const Range range{seed_, offset_, seed_tensor_};
  offset_ += block_count;
  return range;
}

void Generator::give_back(const Range& range, uint64_t block_count) {
  const std::lock_guard lock(mutex_);
  const bool is_same = seed_ == range.seed && seed_tensor_ == range.seed_tensor;
  if (is_same && offset_ == range.offset + block_count) offset_ = range.offset;
}

Device::Device(std::string_view name) : target_(&find_device(name)) {}

void Device::synchronize() const {
  const bp_device_ops& devices = *target_->devices;
  check(devices.synchronize(devices.self, target_->device, UINT64_MAX), "device.synchronize");
}

std::string Device::report(bool has_ops) const {
  const auto counts_of = [&](uint32_t op, bool& is_native) {
    bp_dispatch_statistics s{};
    s.struct_size = sizeof(s);
    s.struct_type = BP_STRUCT_DISPATCH_STATISTICS;
    check(bp_target_statistics(target_, op, &s), "target.statistics");
    is_native = s.decomposed_count == 0 && s.host_fallback_count == 0 && s.laid_out_count == 0;
    const uint64_t all = s.native_count + s.decomposed_count + s.host_fallback_count;
    const std::string compiled =
        s.compiled_count == 0 ? ""
                              : " (" + std::to_string(s.compiled_count) + " as programs of one op)";
    const std::string laid_out = s.laid_out_count == 0 ? ""
                                                       : " (" + std::to_string(s.laid_out_count) +
                                                             " with conversions to layouts)";
    return std::to_string(all) + " launches: " + std::to_string(s.native_count) + " native" +
           compiled + laid_out + ", " + std::to_string(s.decomposed_count) + " decomposed, " +
           std::to_string(s.host_fallback_count) + " on the host";
  };
  bool is_native = false;
  std::string text = std::string(target_->name) + ": " + counts_of(0, is_native);
  for (const uint32_t op : has_ops && !is_native ? all_ops() : std::vector<uint32_t>{}) {
    const std::string counts = counts_of(op, is_native);
    if (!is_native) {
      text += "\n  " + std::string(bp_op_name(op)) + ": " + counts + reasons_of(*target_, op);
    }
  }
  return text;
}

Generator& Device::generator() const {
  Generators& generators = Generators::get();
  const std::lock_guard lock(generators.mutex);
  std::unique_ptr<Generator>& generator = generators.by_target[target_];
  if (generator == nullptr) generator = std::make_unique<Generator>(generators.seed);
  return *generator;
}

void manual_seed(uint64_t seed) {
  Generators& generators = Generators::get();
  const std::lock_guard lock(generators.mutex);
  generators.seed = seed;
  for (auto& [target, generator] : generators.by_target) generator->set_seed(seed);
}

Device current_device() {
  if (current_target == nullptr) {
    throw Error(BP_INVALID_ARGUMENT,
                "no device is given, and none is current: name one, or make a bp::DeviceGuard");
  }
  return Device(*current_target);
}

DeviceGuard::DeviceGuard(Device device) : previous_(current_target) {
  current_target = &device.target();
}

DeviceGuard::~DeviceGuard() { current_target = previous_; }

}  // namespace bp
