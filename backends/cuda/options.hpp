// The options of the backend, which the user sets.
#pragma once

#include <string>
#include <vector>

#include "backplane/shell/options.hpp"

namespace bp::cuda {

// The places to search for NVIDIA's libraries, besides the loader's own path. libraries.hpp has the
// order.
struct LibrarySearch {
  // "library_path": folders, with colons between them.
  std::vector<std::string> folders;

  // "toolkit_path".
  std::string toolkit = "/usr/local/cuda";

  // "python_path": an environment or its site-packages. It is not searched if empty.
  std::string python;
};

struct Options {
  // "devices": those of the devices found that are offered, if this build has code for them.
  ChosenDevices devices;

  // Option "allocator": "pool" takes memory from a pool of the driver, where deallocate() never
  // waits for the device. "plain" uses cudaMalloc() and cudaFree().
  bool has_pool = true;

  // "tf32": whether f32 products may round their factors to 10 bits, unless the launch forbids it.
  bool allows_tf32 = false;

  // "rounded_weights": whether attention of f16 and bf16 may round its weights to the dtype of v,
  // and in gradients also those of scores, unless the launch forbids it.
  bool rounds_weights = true;

  // "attention": whether cuDNN may compute attention of f16 and bf16 ("cudnn"), or the kernels of
  // this backend always do ("kernels").
  bool has_library_attention = false;

  LibrarySearch libraries;
};

// Reads the options that the user gave to `host`. Throws StatusError for a value that is not valid.
Options read_options(const bp_host& host);

}  // namespace bp::cuda
