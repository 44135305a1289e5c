// The resets of a device, by which objects that are older are known.
#pragma once

#include <cstdint>

#include "backplane/device.h"

namespace bp {

// Returns the number of resets of a device, for what is not a handle of lookup.hpp. It is 0 if the
// table has no generation().
inline uint64_t generation_of(const bp_device_ops& devices, bp_device* device) {
  uint64_t generation = 0;
  if (devices.generation != nullptr) {
    static_cast<void>(devices.generation(devices.self, device, &generation));
  }
  return generation;
}

}  // namespace bp
