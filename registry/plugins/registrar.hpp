// The host's side of a registration, and its result.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "backplane/backend.h"
#include "registry/boundary/tables.hpp"
#include "registry/calls/runtime_ops.hpp"

namespace bp::core {

// The tables of one device, as copies in which every slot can be called.
struct RegisteredDevice {
  bp_device* device;
  Tables tables;
};

struct RegisteredKernel {
  const bp_kernel* kernel;
  std::vector<bp_device*> devices;  // An empty list stands for all devices.
};

// What one backend registered.
struct Registration {
  std::string name;  // The name of the backend.
  std::vector<RegisteredDevice> devices;
  // Sorted by priority, then in the order in which they came.
  std::vector<RegisteredKernel> kernels;
  OwnedOps ops;                     // The descriptions of ops.
  std::string refusals;             // A line for each entry that was changed or refused.
  std::deque<std::string> reasons;  // Lent to the backend until its register_all() ends.
};

// Returns a table that fills `registration`, which must outlive it.
bp_registrar make_registrar(Registration* registration);

}  // namespace bp::core
