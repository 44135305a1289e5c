// Which devices there are, found out without making any of them ready.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/options.hpp"

namespace bp::cuda {

// A device of this machine.
struct Site {
  std::string name;
  std::string bus_id;  // "0000:3b:00.0"; "" if it is not known.
  int ordinal = -1;    // CUDA's number of it; -1: to be asked when it is used.
};

// The devices that this build has code for, in the order of their bus ids, or where NVML is missing
// or has a device in parts, in CUDA's. `reasons` gets a sentence for each that is left out, and for
// there being none. Throws StatusError for an option that names none.
//
// CUDA, once initialised, serves no fork of the process, so NVML is asked first.
std::vector<Site> find_sites(const Driver& driver, const Options& options,
                             std::vector<std::string>& reasons);

}  // namespace bp::cuda
