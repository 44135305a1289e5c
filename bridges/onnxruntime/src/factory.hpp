// The factory that ONNX Runtime gets from the library: it offers the devices, and makes a provider
// for each session.
#pragma once

#include <vector>

#include "backplane/runtime/device.hpp"
#include "memory.hpp"
#include "ort.hpp"

namespace bpo {

inline constexpr const char* kProviderName = "BackplaneExecutionProvider";
inline constexpr const char* kVendor = "Backplane";

// The key of a device's name, such as "acme.npu:0", in the metadata of an OrtEpDevice.
inline constexpr const char* kDeviceKey = "backplane.device";

class Factory : public OrtEpFactory {
 public:
  // Loads the plugins. Throws bp::Error if one that the user has named cannot be loaded.
  Factory(const Ort& ort, const OrtLogger* logger);

  const Ort& ort() const { return ort_; }

 private:
  static Factory& of(OrtEpFactory* factory) { return *static_cast<Factory*>(factory); }
  void set_callbacks();
  void set_memory_callbacks();
  void offer(const OrtHardwareDevice* const* hardware, size_t hardware_count, OrtEpDevice** out,
             size_t capacity, size_t* out_count);
  DeviceMemory* find_memory(const OrtMemoryInfo* info) const;
  const DeviceMemory* memory_of(const bp::Device& device) const;
  OrtEpDevice* make_device(const bp::Device& device, const OrtHardwareDevice* hardware);

  Ort ort_;
  const OrtLogger* logger_;
  std::vector<bp::Device> devices_;
  Memories memories_;  // Of the devices that are not of class host.
};

}  // namespace bpo
