// Finds the devices of the machine without initialising any of them.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/options.hpp"

namespace bp::cuda {

// A device of this machine.
struct Site {
  std::string name;
  std::string bus_id;  // Such as "0000:3b:00.0"; "" if not known.
  int ordinal = -1;    // CUDA's number of the device; -1 until it is used.
};

// Returns the devices for which this build has code, in the order of their bus ids. If NVML is
// missing, if a device is divided into parts, or if CUDA_VISIBLE_DEVICES chooses devices, they are
// in CUDA's order, and only those that CUDA shows are returned. `reasons` gets a
// sentence for each device that is left out, and one if there is no device. Throws StatusError if
// an option names a device that does not exist.
//
// NVML is asked first, because CUDA does not work in a fork of a process that has initialised it.
std::vector<Site> find_sites(const Driver& driver, const Options& options,
                             std::vector<std::string>& reasons);

}  // namespace bp::cuda
