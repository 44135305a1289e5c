// What the host chooses about the simulated hardware: the options of the backend.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "backplane/base.h"

namespace bp::sim {

// How the memory of a device and that of the host meet.
enum class HeapMode : uint8_t {
  kCoherent,     // Device memory out of the host's reach, and a heap that both see at once.
  kNoncoherent,  // One heap that the host sees through copies, moved by flush() and invalidate().
  kIntegrated,   // One heap that both see at once.
};

// Pauses before and after work, drawn from `seed`.
struct DelayOptions {
  uint64_t bound_us = 50;         // No pause is longer.
  double probability = 1.0 / 16;  // Of a pause, each time.
  uint64_t seed = 0x5eed;
};

struct Options {
  uint32_t device_count = 2;
  uint64_t capacity_bytes = uint64_t{1} << 30;  // Of each heap.
  uint64_t offset_alignment_bytes = 1;
  HeapMode heaps = HeapMode::kCoherent;
  bool is_protected = true;        // Memory is out of the host's reach unless work needs it.
  bool has_addresses = true;       // address() tells where a buffer lies.
  bool has_peers = true;           // Devices copy from one another.
  bool has_whole_buffers = false;  // Buffers are not to be divided.
  bool has_shared_queue = false;   // One thread runs the work of all streams.
  bool has_kernels = true;         // Else the device runs compiled programs alone.
  bool has_virtual_memory = true;  // Addresses are reserved apart from memory.
  bool has_registration = true;    // The device works on memory of the host.
  bool has_sharing = true;         // Memory and events are shared with other processes.
  bool has_native_streams = true;  // Streams are known to the device's own library.
  bool has_tiles = true;           // Some kernels prefer tensors in tiles.
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
  mutable std::mutex mutex_;  // Guards `delays_`.
  DelayOptions delays_;
};

// The options that the user gave to `host`. Throws StatusError for a value that does not fit.
Options read_options(const bp_host& host);

// Sets the delay option `key`; false if it is none. Throws StatusError for a value that does not
// fit.
bool set_delay_option(DelayOptions& delays, std::string_view key, std::string_view value);

}  // namespace bp::sim
