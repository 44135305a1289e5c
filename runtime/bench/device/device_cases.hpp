// The cases that both sides of the comparison on an accelerator run. torch_peer.py has them under
// the same names.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/bench/peers/inputs.hpp"

namespace bp::bench {

using Op = std::function<Tensor()>;

struct DeviceCase {
  std::string name;
  double bytes = 0;           // The least that must be read and written.
  double flops = 0;           // Multiplications and additions.
  std::function<Op()> setup;  // Makes the inputs on the current device.
};

std::vector<DeviceCase> device_cases();

}  // namespace bp::bench
