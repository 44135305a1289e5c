// What the user may choose, by the host's options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/base.h"

namespace bp::cuda {

struct Options {
  // "devices": ordinals of CUDA, as in "0,2"; empty: all that this build has code for.
  std::vector<int> devices;

  // "allocator": "pool" takes memory from a pool of the driver, whose free never waits for the
  // device; "plain" is cudaMalloc and cudaFree.
  bool has_pool = true;
};

// Throws StatusError for a value that does not fit.
Options read_options(const bp_host& host);

}  // namespace bp::cuda
