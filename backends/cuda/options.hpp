// The options of the backend, which the user sets.
#pragma once

#include "backplane/shell/options.hpp"

namespace bp::cuda {

struct Options {
  // "devices": those of the devices found that are offered, if this build has code for them.
  ChosenDevices devices;

  // Option "allocator": "pool" takes memory from a pool of the driver, where free() never waits for
  // the device. "plain" uses cudaMalloc() and cudaFree().
  bool has_pool = true;
};

// Reads the options that the user gave to `host`. Throws StatusError for a value that is not valid.
Options read_options(const bp_host& host);

}  // namespace bp::cuda
