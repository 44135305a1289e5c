// CUDA_VISIBLE_DEVICES hides devices from CUDA, but not from NVML.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bp::cuda {

// A device as NVML describes it.
struct Listed {
  std::string name;
  std::string uuid;  // Such as "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
};

// Returns the positions in `listed`, which is in the order of bus ids, of the devices that CUDA
// shows, in CUDA's order. `visible` is the value of CUDA_VISIBLE_DEVICES: indices or the beginnings
// of UUIDs, with commas between them. As in CUDA, the list ends before the first entry that names
// no device, and a device that is named twice hides all. Returns nothing if only CUDA can tell: an
// entry names a part of a device (MIG), or an index counts devices of several models, which CUDA
// orders by speed unless `has_bus_order` (CUDA_DEVICE_ORDER=PCI_BUS_ID).
//
// Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
std::optional<std::vector<size_t>> visible_devices(std::string_view visible, bool has_bus_order,
                                                   const std::vector<Listed>& listed);

}  // namespace bp::cuda
