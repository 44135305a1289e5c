#include "factory.hpp"

#include "devices.hpp"
#include "ep.hpp"

namespace bpo {
namespace {

constexpr int32_t kCpuHardware = 0;

// The metadata of the one device that a session has chosen.
const char* chosen_device(const Ort& ort, const OrtKeyValuePairs* const* metadata, size_t count) {
  if (count != 1) {
    throw OrtError(BP_INVALID_ARGUMENT,
                   std::to_string(count) + " devices are given to " + kProviderName +
                       "; allowed: one for each session (see 'backplane.device' in ep_metadata)");
  }
  const char* const name = metadata[0] ? ort.GetKeyValue(metadata[0], kDeviceKey) : nullptr;
  if (name == nullptr) {
    throw OrtError(BP_INVALID_ARGUMENT,
                   std::string("the device has no '") + kDeviceKey + "' in its metadata");
  }
  return name;
}

// Finds the processor of the host among the hardware that ONNX Runtime knows. Devices of plugins
// are not in that list, so each of them is attached to the processor that drives it.
const OrtHardwareDevice* find_processor(const Ort& ort, const OrtHardwareDevice* const* hardware,
                                        size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (ort.HardwareDevice_Type(hardware[i]) == kCpuHardware) return hardware[i];
  }
  throw OrtError(BP_NOT_FOUND, "ONNX Runtime has found no processor to attach devices to");
}

}  // namespace

Factory::Factory(const Ort& ort, const OrtLogger* logger)
    : OrtEpFactory{}, ort_(ort), logger_(logger) {
  devices_ = find_devices([&](const std::string& text) { ort_.log(logger_, kWarning, text); });
  ort_version_supported = ort_.version;
  GetName = [](const OrtEpFactory*) { return kProviderName; };
  GetVendor = [](const OrtEpFactory*) { return kVendor; };
  GetVendorId = [](const OrtEpFactory*) -> uint32_t { return 0; };
  GetVersion = [](const OrtEpFactory*) { return BPO_VERSION; };
  IsStreamAware = [](const OrtEpFactory*) { return false; };
  GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* hardware,
                           size_t hardware_count, OrtEpDevice** out, size_t capacity,
                           size_t* out_count) {
    return guarded(of(self).ort_,
                   [&] { of(self).offer(hardware, hardware_count, out, capacity, out_count); });
  };
  CreateEp = [](OrtEpFactory* self, const OrtHardwareDevice* const*,
                const OrtKeyValuePairs* const* metadata, size_t count,
                const OrtSessionOptions* session, const OrtLogger* session_logger, OrtEp** out) {
    const Ort& ort = of(self).ort_;
    return guarded(ort, [&] {
      const char* const name = chosen_device(ort, metadata, count);
      *out = new Ep(ort, device_of_name(name), read_options(ort, session, kProviderName),
                    session_logger);
    });
  };
  ReleaseEp = [](OrtEpFactory*, OrtEp* ep) { delete static_cast<Ep*>(ep); };
  // Tensors cross the border of a partition in memory of the host, so ONNX Runtime needs neither an
  // allocator nor copies nor streams of ours.
  CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                       OrtAllocator** out) -> OrtStatus* {
    *out = nullptr;
    return nullptr;
  };
  ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) {};
  CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** out) -> OrtStatus* {
    *out = nullptr;
    return nullptr;
  };
  CreateSyncStreamForDevice = [](OrtEpFactory*, const OrtMemoryDevice*, const OrtKeyValuePairs*,
                                 OrtSyncStreamImpl** out) -> OrtStatus* {
    *out = nullptr;
    return nullptr;
  };
}

OrtEpDevice* Factory::make_device(const bp::Device& device, const OrtHardwareDevice* hardware) {
  const bp_plugin& plugin = *device.target().plugin;
  Pairs metadata(ort_);
  metadata.add(kDeviceKey, device.name());
  metadata.add("backplane.plugin", plugin.path);
  metadata.add("backplane.plugin_version", plugin.version);
  OrtEpDevice* made = nullptr;
  ort_.check(ort_.CreateEpDevice(this, hardware, metadata.get(), nullptr, &made), "CreateEpDevice");
  return made;
}

void Factory::offer(const OrtHardwareDevice* const* hardware, size_t hardware_count,
                    OrtEpDevice** out, size_t capacity, size_t* out_count) {
  const OrtHardwareDevice* const processor = find_processor(ort_, hardware, hardware_count);
  *out_count = 0;
  for (const bp::Device& device : devices_) {
    if (*out_count == capacity) {
      ort_.log(logger_, kWarning,
               "ONNX Runtime takes at most " + std::to_string(capacity) +
                   " devices of a library, so '" + device.name() +
                   "' and what follows is left out; BACKPLANE_ORT_PLUGINS chooses plugins");
      return;
    }
    out[(*out_count)++] = make_device(device, processor);
  }
}

}  // namespace bpo
