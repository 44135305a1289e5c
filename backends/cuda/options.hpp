// The options of the backend, which the user sets.
#pragma once

#include <string>
#include <vector>

#include "backplane/shell/options.hpp"

namespace bp::cuda {

// The places where NVIDIA's libraries are searched, besides the loader's own path. Options
// "library_path", with colons between the folders, "toolkit_path" and "python_path".
struct LibrarySearch {
  std::vector<std::string> folders;
  std::string toolkit = "/usr/local/cuda";
  std::string python;  // Not searched if empty.
};

struct Options {
  // "devices": those of the devices found that are offered, if this build has code for them.
  ChosenDevices devices;

  // Option "allocator": "pool" takes memory from a pool of the driver, where free() never waits for
  // the device. "plain" uses cudaMalloc() and cudaFree().
  bool has_pool = true;

  // Option "tf32": whether f32 products may round their factors to 10 bits, unless the launch
  // forbids it.
  bool allows_tf32 = false;

  LibrarySearch libraries;
};

LibrarySearch read_library_search(const bp_host& host);

// Reads the options that the user gave to `host`. Throws StatusError for a value that is not valid.
Options read_options(const bp_host& host);

}  // namespace bp::cuda
