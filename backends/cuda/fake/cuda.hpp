// A fake CUDA for tests, which needs no GPU. Its devices use the memory of the host, and its
// streams run on threads. It has events and graphs, and a test can make any call fail. It behaves
// as CUDA does where the backend relies on that, and reports broken rules: a call without a current
// context, a call from within a callback, or a handle that is left over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/cuda/driver.hpp"

namespace bp::cuda::fake {

// Returns the table of its functions. They share one state in a program or plugin that links them.
Driver driver();

struct Setup {
  int device_count = 2;
  uint64_t memory_bytes = uint64_t{1} << 30;  // The memory of each device.
  bool has_pools = true;
  int major = 9;
  int shared_kib = 227;  // The most shared memory of a block, in KiB: 99 on consumer devices.
  bool has_nvml = true;
  bool is_in_parts = false;  // If true, MIG divides the first device.
  int driver_version = CUDART_VERSION;
  // If true, copies from pageable memory return before they have read it, as with HMM and ATS.
  bool reads_pageable_late = false;
};

// Forgets everything, and starts again with the devices of `setup`.
void reset(const Setup& setup = {});

// Sets Setup::shared_kib, and leaves all else as it is.
void limit_shared_memory(int kib);

// Makes call number `nth` of the function `name` fail with `error`; the first call has number 1. If
// CUDA does not recover from the error, every later call fails too. If `nth` is 0, no call fails.
void fail_call(const std::string& name, uint64_t nth, int error);

// Blocks until each stream has nothing to do or waits for an event.
void finish();

// Returns how often each function was called since reset().
std::map<std::string, uint64_t> call_counts();

// Returns the rules that were broken since reset(), in words.
std::vector<std::string> violations();

// Returns the handles that were made and not ended, in words such as "2 streams".
std::vector<std::string> leftovers();

// What a launch of a kernel does. It reads the arguments, and returns the work.
using KernelBody = std::function<std::function<void()>(void** args)>;
void add_kernel(const void* kernel, KernelBody body);

}  // namespace bp::cuda::fake
