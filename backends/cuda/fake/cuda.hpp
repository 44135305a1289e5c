// A CUDA for tests, without a GPU: devices whose memory is the host's, streams that run on threads,
// events, graphs, and failures on order. It keeps CUDA's rules where the backend relies on them,
// and counts what broke one: a call without a current context, one from within a callback, a handle
// that was left over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/cuda/driver.hpp"

namespace bp::cuda::fake {

// The table. Its functions share one state per process, or per plugin that this is linked into.
Driver driver();

struct Setup {
  int device_count = 2;
  uint64_t memory_bytes = uint64_t{1} << 30;  // The memory of each device.
  bool has_pools = true;
  int major = 9;
  bool has_nvml = true;
  bool is_in_parts = false;  // MIG divides the first device.
  int driver_version = CUDART_VERSION;
};

// Forgets everything, and begins with these devices.
void reset(const Setup& setup = {});

// Lets call number `nth`, from 1 on, of the function `name` fail with `error`, and every later call
// too if that is an error which CUDA does not recover from. An nth of 0 takes the order back.
void fail_call(const std::string& name, uint64_t nth, int error);

// Blocks until all streams have nothing to do, or wait for an event.
void finish();

// Returns how often each function was called since reset().
std::map<std::string, uint64_t> call_counts();

// Returns the rules that were broken since reset(), in words.
std::vector<std::string> violations();

// Returns the handles that were made and not ended, in words such as "2 streams".
std::vector<std::string> leftovers();

// The body of a kernel's launch. It reads the arguments, and returns the work.
using KernelBody = std::function<std::function<void()>(void** args)>;
void add_kernel(const void* kernel, KernelBody body);

}  // namespace bp::cuda::fake
