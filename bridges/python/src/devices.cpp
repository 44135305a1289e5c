// Plugins, the devices that they bring, and what the library knows of both.
#include <nanobind/stl/map.h>

#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "backplane/runtime/device.hpp"
#include "backplane/runtime/memory.hpp"
#include "binding.hpp"

namespace bp::python {
namespace {

// Returns the names of the profiles, dtypes and the like of a list of the library.
nb::list names_of(const char* const* names, uint64_t count) {
  nb::list result;
  for (uint64_t i = 0; i < count; ++i) result.append(nb::str(names[i]));
  return result;
}

nb::list dtypes_of(const bp_device_properties& properties) {
  nb::list result;
  for (uint64_t i = 0; i < properties.dtype_count; ++i) {
    if (bp_dtype_name(properties.dtypes[i]) == nullptr) continue;
    result.append(nb::borrow(dtype_object(properties.dtypes[i])));
  }
  return result;
}

const bp_device_properties& properties_of(const Device& device) {
  return *device.target().properties;
}

// ---- Loading ------------------------------------------------------------------------------------

nb::dict to_dict(const bp_plugin& plugin) {
  nb::dict result;
  result["name"] = plugin.name;
  result["version"] = plugin.version;
  result["path"] = plugin.path;
  result["refusals"] = plugin.refusals;
  result["abi"] = nb::make_tuple(plugin.abi_major, plugin.abi_minor);
  result["kernel_count"] = plugin.kernel_count;
  result["layers"] = plugin.layers;
  nb::list devices;
  bp_registry* const registry = default_registry();
  for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
    const bp_target* target = bp_registry_target(registry, i);
    if (target->plugin == &plugin) devices.append(Device(*target));
  }
  result["devices"] = devices;
  return result;
}

nb::dict load(const std::string& name, const std::map<std::string, std::string>& options) {
  check_process();
  std::vector<bp_option> list;
  list.reserve(options.size());
  for (const auto& [key, value] : options) list.push_back({key.c_str(), value.c_str()});
  const bp_plugin* plugin = nullptr;
  {
    const Released released;
    check_host(
        bp_registry_load(default_registry(), name.c_str(), list.size(), list.data(), &plugin));
  }
  return to_dict(*plugin);
}

nb::list plugins() {
  bp_registry* const registry = default_registry();
  nb::list result;
  for (uint64_t i = 0; i < bp_registry_plugin_count(registry); ++i) {
    result.append(to_dict(*bp_registry_plugin(registry, i)));
  }
  return result;
}

nb::list devices() {
  bp_registry* const registry = default_registry();
  nb::list result;
  for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
    result.append(Device(*bp_registry_target(registry, i)));
  }
  return result;
}

// A manifest is lent until the next discovery, so its texts are copied at once.
struct Manifest {
  explicit Manifest(const bp_manifest& m) : name(m.name) {
    const auto copy = [](const char* text) {
      return text == nullptr ? std::nullopt : std::optional<std::string>(text);
    };
    file = copy(m.file);
    library = copy(m.library);
    problem = copy(m.problem);
  }

  std::string name;
  std::optional<std::string> file, library, problem;
};

std::vector<Manifest> discover() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  bp_registry* const registry = default_registry();
  uint64_t count = 0;
  check_host(bp_registry_discover(registry, &count));
  std::vector<Manifest> result;
  for (uint64_t i = 0; i < count; ++i) {
    const bp_manifest* manifest = nullptr;
    check_host(bp_registry_manifest(registry, i, &manifest));
    result.emplace_back(*manifest);
  }
  return result;
}

nb::list manifests() {
  std::vector<Manifest> found;
  {
    const Released released;
    found = discover();
  }
  nb::list result;
  for (const Manifest& manifest : found) {
    nb::dict entry;
    entry["name"] = manifest.name;
    entry["file"] = nb::cast(manifest.file);
    entry["library"] = nb::cast(manifest.library);
    entry["problem"] = nb::cast(manifest.problem);
    result.append(entry);
  }
  return result;
}

// ---- Statistics ---------------------------------------------------------------------------------

nb::dict statistics(const Device& device) {
  const bp_cache_statistics s = memory_statistics(device);
  nb::dict result;
  result["allocated_bytes"] = s.allocated_bytes;
  result["allocated_peak_bytes"] = s.allocated_peak_bytes;
  result["reserved_bytes"] = s.reserved_bytes;
  result["reserved_peak_bytes"] = s.reserved_peak_bytes;
  result["requested_bytes"] = s.requested_bytes;
  result["allocation_count"] = s.allocation_count;
  result["free_count"] = s.free_count;
  result["out_of_memory_count"] = s.out_of_memory_count;
  return result;
}

nb::dict counts(const Device& device) {
  bp_dispatch_statistics s{};
  s.struct_size = sizeof(s);
  s.struct_type = BP_STRUCT_DISPATCH_STATISTICS;
  check_host(bp_target_statistics(&device.target(), 0, &s));
  nb::dict result;
  result["native"] = s.native_count;
  result["decomposed"] = s.decomposed_count;
  result["host_fallback"] = s.host_fallback_count;
  return result;
}

// Waits in slices, so that Ctrl-C is noticed.
void wait_for(const Device& device, std::optional<double> timeout_s) {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kSliceNs = 100'000'000;
  const bp_device_ops& ops = *device.target().devices;
  const auto begin = Clock::now();
  while (true) {
    bp_status status = BP_OK;
    {
      const Released released;
      status = ops.synchronize(ops.self, device.target().device, kSliceNs);
    }
    if (status != BP_TIMEOUT) return check_host(status);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    const std::chrono::duration<double> passed = Clock::now() - begin;
    if (timeout_s && passed.count() >= *timeout_s) {
      throw Error(BP_TIMEOUT, std::string(device.name()) + " still works after " +
                                  std::to_string(*timeout_s) + " s");
    }
  }
}

// No op takes more than four words of the sequence for an element, and these are a block.
nb::dict draw(const Device& device, uint64_t count) {
  const Generator::Range range = device.generator().take(count);
  nb::dict result;
  result["seed"] = range.seed;
  result["offset"] = range.offset;
  return result;
}

void bind_properties(nb::class_<Device>& c) {
  c.def_prop_ro("name", &Device::name, "The full name: 'vendor.backend:0'.")
      .def_prop_ro(
          "description", [](const Device& d) { return properties_of(d).name; },
          "What the vendor calls the device.")
      .def_prop_ro(
          "is_host",
          [](const Device& d) { return properties_of(d).device_class == BP_DEVICE_HOST; },
          "Whether the device computes in the memory of this process.")
      .def_prop_ro(
          "dtypes", [](const Device& d) { return dtypes_of(properties_of(d)); },
          "The dtypes that its tensors may have.")
      .def_prop_ro(
          "profiles",
          [](const Device& d) {
            return names_of(properties_of(d).profiles, properties_of(d).profile_count);
          },
          "The sets of ops that the backend claims to cover.");
}

void bind_methods(nb::class_<Device>& c) {
  using Guard = nb::call_guard<Released>;
  c.def("synchronize", &wait_for, nb::arg("timeout_s").none() = nb::none(),
        "Waits until all streams of the device are idle; raises Timeout after `timeout_s` seconds.")
      .def("report", &Device::report, nb::arg("ops") = false,
           "Says how ops were served: by kernels, by decompositions, or on the host; with ops=True "
           "for each op, and why.")
      .def("draw", &draw, nb::arg("count"),
           "Takes the part of the device's random sequence that an op with `count` results needs: "
           "ops.dropout(x, p=0.5, **device.draw(x.size)). manual_seed() begins the sequence again.")
      .def("counts", &counts, "How many calls ran on kernels, as decompositions, and on the host.")
      .def("memory_statistics", &statistics, "What the cache of device memory holds, in bytes.")
      .def("memory_summary", &memory_summary, Guard(), "The same as a table for people.")
      .def("empty_cache", &empty_cache, Guard(),
           "Gives memory that no tensor uses back to the device.")
      .def(
          "__eq__",
          [](const Device& d, nb::handle other) {
            return nb::isinstance<Device>(other) && nb::cast<Device>(other) == d;
          },
          nb::arg("other").none())
      .def("__hash__", [](const Device& d) { return reinterpret_cast<intptr_t>(&d.target()) >> 4; })
      .def("__repr__",
           [](const Device& d) { return "backplane.Device('" + std::string(d.name()) + "')"; })
      .def("__str__", &Device::name)
      .def("__reduce__", [](const Device& d) {
        return nb::make_tuple(nb::type<Device>(), nb::make_tuple(nb::str(d.name())));
      });
}

void bind_device_class(nb::module_& module) {
  nb::class_<Device> c(module, "Device",
                       "A device of a loaded backend. Devices are equal if they are the same "
                       "device.");
  c.def(
      "__init__",
      [](Device* self, const std::string& name) {
        const Released released;
        new (self) Device(std::string_view(name));
      },
      nb::arg("name"),
      "Finds 'vendor.backend:0', 'backend:0' or 'backend', and loads the backend of this name if "
      "none has the device yet.");
  bind_properties(c);
  bind_methods(c);
}

}  // namespace

Device to_device(nb::handle value, const char* what) {
  check_process();
  if (nb::isinstance<Device>(value)) return nb::cast<Device>(value);
  if (!nb::isinstance<nb::str>(value)) {
    raise(PyExc_TypeError, std::string(what) + " is " + type_text(value) +
                               "; allowed: a backplane.Device, or its name, such as 'cpu:0'");
  }
  const std::string name = nb::cast<std::string>(value);
  const Released released;
  return Device(std::string_view(name));
}

Device default_device() {
  return nb::cast<Device>(nb::module_::import_("backplane._devices").attr("default_device")());
}

void bind_devices(nb::module_& module) {
  bind_device_class(module);
  module.def("_load", &load, nb::arg("name"), nb::arg("options"));
  module.def("plugins", &plugins, "The loaded plugins: a dict for each.");
  module.def("devices", &devices, "The devices of all loaded plugins.");
  module.def("manifests", &manifests, "What the manifests in the search path say, without a load.");
  module.def("manual_seed", &manual_seed, nb::arg("seed"), "Seeds the generators of all devices.");
}

}  // namespace bp::python
