#include "factory.hpp"

#include "devices.hpp"
#include "ep.hpp"
#include "transfer.hpp"

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
  for (const bp::Device& device : devices_) {
    if (device.target().properties->device_class == BP_DEVICE_HOST) continue;
    const auto number = static_cast<int32_t>(memories_.size());
    memories_.push_back(std::make_unique<DeviceMemory>(ort_, logger_, device, number));
  }
  ort_version_supported = ort_.version;
  set_callbacks();
  set_memory_callbacks();
}

void Factory::set_callbacks() {
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
      const bp::Device device = device_of_name(chosen_device(ort, metadata, count));
      *out = new Ep(ort, device, read_options(ort, session, kProviderName), session_logger,
                    of(self).memories_, of(self).memory_of(device));
    });
  };
  ReleaseEp = [](OrtEpFactory*, OrtEp* ep) { delete static_cast<Ep*>(ep); };
}

void Factory::set_memory_callbacks() {
  CreateAllocator = [](OrtEpFactory* self, const OrtMemoryInfo* info, const OrtKeyValuePairs*,
                       OrtAllocator** out) {
    return guarded(of(self).ort_, [&] { *out = of(self).find_memory(info); });
  };
  ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) {};  // They are the factory's.
  CreateDataTransfer = [](OrtEpFactory* self, OrtDataTransferImpl** out) {
    return guarded(of(self).ort_, [&] {
      *out = of(self).memories_.empty() ? nullptr
                                        : new DataTransfer(of(self).ort_, of(self).memories_);
    });
  };
  // A run has ended when its call returns, so that ONNX Runtime needs no streams.
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
  std::unique_ptr<OrtEpDevice, void (*)(OrtEpDevice*)> owner(made, ort_.ReleaseEpDevice);
  if (const DeviceMemory* const memory = memory_of(device)) {
    ort_.check(ort_.EpDevice_AddAllocatorInfo(made, memory->info()), "EpDevice_AddAllocatorInfo");
  }
  return owner.release();
}

const DeviceMemory* Factory::memory_of(const bp::Device& device) const {
  for (const std::unique_ptr<DeviceMemory>& memory : memories_) {
    if (memory->device() == device) return memory.get();
  }
  return nullptr;
}

DeviceMemory* Factory::find_memory(const OrtMemoryInfo* info) const {
  for (const std::unique_ptr<DeviceMemory>& memory : memories_) {
    if (memory->is_of(ort_.MemoryInfo_GetMemoryDevice(info))) return memory.get();
  }
  throw OrtError(BP_INVALID_ARGUMENT, "an allocator is asked for memory of no device of ours");
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
