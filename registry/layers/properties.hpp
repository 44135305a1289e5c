// Copies the properties of devices. Targets need copies that stay readable after the unload of
// their backend; layers that hide something need changed ones.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/backend.h"

namespace bp::layers {

struct ShownProperties {
  bp_device_properties properties{};
  std::vector<bp_dtype> dtypes;
  std::vector<const char*> profiles;
  std::vector<bp_heap> heaps;

  // Makes `properties` point to the lists above, and the lists to strings of their own.
  void seal();

  // Ends the links, which are the backend's own.
  void end_links();

 private:
  std::string own_name_, own_bus_id_;
  std::vector<std::string> own_profiles_;
};

// The caller may change the copy, and must then call seal().
std::unique_ptr<ShownProperties> copy_properties(const bp_device_properties& theirs);

// Makes one copy for each device and lends it from then on. Thread-safe.
class PropertiesCopies {
 public:
  // Asks `next`, and sets *out_properties to the copy for `device`, which `change` has changed.
  template <typename Change>
  bp_status get(const bp_device_ops& next, bp_device* device,
                const bp_device_properties** out_properties, Change&& change) {
    if (out_properties == nullptr) return next.properties(next.self, device, nullptr);
    const bp_device_properties* theirs = nullptr;
    const bp_status status = next.properties(next.self, device, &theirs);
    if (status != BP_OK) return status;
    if (theirs == nullptr) {
      *out_properties = nullptr;
      return status;
    }
    const std::lock_guard lock(mutex_);
    std::unique_ptr<ShownProperties>& shown = copies_[device];
    if (shown == nullptr) {
      shown = copy_properties(*theirs);
      change(*shown);
      shown->seal();
    }
    *out_properties = &shown->properties;
    return BP_OK;
  }

 private:
  std::mutex mutex_;
  std::map<bp_device*, std::unique_ptr<ShownProperties>> copies_;  // Guarded by mutex_.
};

}  // namespace bp::layers
