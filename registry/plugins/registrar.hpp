// The host's side of a registration, and what came of it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "backplane/backend.h"
#include "registry/boundary/tables.hpp"

namespace bp::core {

// The tables of one device, as copies in which every slot can be called.
struct RegisteredDevice {
  bp_device* device;
  Tables tables;
};

struct RegisteredKernel {
  const bp_kernel* kernel;
  std::vector<bp_device*> devices;  // None means all.
};

// What one backend registered.
struct Registration {
  std::string name;  // Of the backend.
  std::vector<RegisteredDevice> devices;
  std::vector<RegisteredKernel> kernels;  // By priority, then in the order in which they came.
  std::string refusals;                   // A line for each entry that is not as it was meant.
  std::deque<std::string> reasons;        // Lent to the backend until its register_all() ends.
};

// A table that fills `registration`, which must outlive it.
bp_registrar make_registrar(Registration* registration);

}  // namespace bp::core
