// The options of the backend, by which the host chooses properties of the simulated hardware.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "backplane/base.h"

namespace bp {
struct CompilerLimits;
}

namespace bp::sim {

// How the host reaches the memory of a device.
enum class HeapMode : uint8_t {
  kCoherent,     // A heap that the host cannot access, and a heap that both access without copies.
  kNoncoherent,  // One heap that the host sees through copies, which flush() and invalidate() move.
  kIntegrated,   // One heap that both access without copies.
};

// How the elements of tensors lie that kernels take.
enum class LayoutMode : uint8_t {
  kTiled,  // By strides, and some kernels prefer tiles.
  kNone,   // By strides alone.
  kOnly,   // In tiles alone.
};

// Random pauses before and after work, drawn from `seed`.
struct DelayOptions {
  uint64_t bound_us = 50;         // No pause is longer.
  double probability = 1.0 / 16;  // The probability of each pause.
  uint64_t seed = 0x5eed;
};

struct Options {
  uint32_t device_count = 2;
  uint64_t capacity_bytes = uint64_t{1} << 30;  // The size of each heap.
  uint64_t offset_alignment_bytes = 1;
  HeapMode heaps = HeapMode::kCoherent;
  bool is_protected = true;        // The host cannot access memory unless work needs it.
  bool has_addresses = true;       // address() tells where a buffer lies.
  bool has_peers = true;           // Devices copy from one another.
  bool has_whole_buffers = false;  // A buffer cannot be divided.
  bool has_shared_queue = false;   // One thread runs the work of all streams.
  bool has_kernels = true;         // If false, the device runs compiled programs alone.
  bool has_virtual_memory = true;  // Addresses can be reserved without memory.
  bool has_registration = true;    // The device can work on memory of the host.
  bool has_sharing = true;         // Processes can share memory and events.
  bool has_native_streams = true;  // Streams have native handles.
  LayoutMode layouts = LayoutMode::kTiled;
  bool has_own_ops = false;  // The device describes ops of its own.
  std::string network;       // The file of the network between the devices; "" if they have none.
  DelayOptions delays;
};

// Delays that can be changed while streams draw from them.
class SharedDelays {
 public:
  explicit SharedDelays(DelayOptions delays) : delays_(delays) {}
  DelayOptions get() const {
    const std::lock_guard lock(mutex_);
    return delays_;
  }
  void set(const DelayOptions& delays) {
    const std::lock_guard lock(mutex_);
    delays_ = delays;
  }

 private:
  mutable std::mutex mutex_;  // It guards `delays_`.
  DelayOptions delays_;
};

// Reads the options that the user gave to `host`. Throws StatusError for a value that is not valid.
Options read_options(const bp_host& host);

// Reads the options that say what the compiler refuses. Throws StatusError for a value that is not
// valid.
CompilerLimits read_limits(const bp_host& host);

// Sets the delay option `key`. Returns false if `key` is not a delay option. Throws StatusError if
// the value is not valid.
bool set_delay_option(DelayOptions& delays, std::string_view key, std::string_view value);

}  // namespace bp::sim
