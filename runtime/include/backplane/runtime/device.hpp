// Devices, streams, events, and the generators of random numbers.
//
//   bp::Device device("npu:0");          // Loads the backend that has it, where none did so far.
//   bp::Stream copies(device);
//   bp::StreamGuard guard(copies);       // Until the end of the scope, this thread's work for the
//                                        // device goes to `copies`.
//
// Rules for everything here, unless it says otherwise:
//   Threads    Safe from any thread, but not while an object is moved or destroyed.
//   Blocking   Never waits for a device.
//   Errors     Throws bp::Error. Destructors cannot: synchronize() first to learn of failed work.
//   Ownership  Stream and Event own their handle and can only be moved. A Device is a name: it may
//              be copied freely, and lives as long as the registry it came from.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "backplane/host.h"

namespace bp {

// The registry that Device("...") loads backends into. Made by its first use and never destroyed,
// since tensors may live until the process ends.
bp_registry* default_registry();

// The state of a Philox generator: a seed, and how far its sequence has been used up.
class Generator {
 public:
  struct Range {
    uint64_t seed;
    uint64_t offset;  // The first block, of four words each, that is the taker's alone.
  };

  explicit Generator(uint64_t seed) : seed_(seed) {}

  // Begins the sequence of `seed` again.
  void set_seed(uint64_t seed, uint64_t offset = 0);

  // The present state, to be given back to set_seed().
  Range state() const;

  // Takes the next `block_count` blocks out of the sequence.
  Range take(uint64_t block_count);

 private:
  mutable std::mutex mutex_;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

class Device {
 public:
  // Finds "vendor.backend:0", "backend:0" or "backend" (its first device) in default_registry(). If
  // no loaded backend has it, loads the one whose manifest has that name. While no device of class
  // host is loaded then, for the ops that this device has no kernel for, loads the other backends
  // that are found, one after the other, until one brings such a device. Those that fail to load
  // are passed over; bp_error_text() has what the latest of them said.
  Device(std::string_view name);  // NOLINT: a name is a device wherever one is asked for.
  Device(const char* name) : Device(std::string_view(name)) {}  // NOLINT: as above.

  // A device of any registry, which must outlive all that is made on it.
  explicit Device(const bp_target& target) : target_(&target) {}

  const bp_target& target() const { return *target_; }
  const char* name() const { return target_->name; }  // "vendor.backend:0"

  // Blocks until all streams of the device are idle.
  void synchronize() const;

  // How the ops on this device were served, in a line: by its kernels, by decompositions, on the
  // host. With `has_ops` a line follows for each op that did not always run on its kernels;
  // bp_kernel_explain() says why for a call.
  std::string report(bool has_ops = false) const;

  // The generator that random ops on this device use unless they are given another.
  Generator& generator() const;

  friend bool operator==(const Device&, const Device&) = default;

 private:
  const bp_target* target_;
};

// Seeds the generators of all devices, also of those that are used later.
void manual_seed(uint64_t seed);

// The device that this thread's DeviceGuard names; without one it is an Error.
Device current_device();

// Makes `device` the one where tensors are made if none is named, for this thread and scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const bp_target* previous_;
};

class Event;

// An ordered queue of work on one device. Destroying it does not wait for its work.
class Stream {
 public:
  explicit Stream(Device device, int32_t priority = 0);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  // Orders later work on this stream after what was submitted to `other` so far, which must be of
  // the same backend.
  void wait_for(const Stream& other);
  void wait_for(const Event& event);

  // Whether all submitted work has ended.
  bool is_idle() const;

  // Blocks until idle. Throws the failure of the stream, each time until it is cleared.
  void synchronize() const;

  Device device() const { return device_; }
  bp_stream* get() const { return handle_; }

 private:
  Device device_;
  bp_stream* handle_;
};

// A point in the work of a stream.
class Event {
 public:
  explicit Event(Device device, bp_event_flags flags = 0);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Captures what was submitted so far to `stream`, or to the current stream of the device.
  void record(const Stream& stream);
  void record();

  bool is_done() const;

  // Blocks until done. Throws the failure that the event carries.
  void synchronize() const;

  // Nanoseconds on the device from this event to `end`; both were made with BP_EVENT_TIMING.
  int64_t elapsed_ns(const Event& end) const;

  Device device() const { return device_; }
  bp_event* get() const { return handle_; }

 private:
  Device device_;
  bp_event* handle_;
};

// Sends this thread's work for the stream's device to `stream` until the end of the scope. Guards
// nest, and one for another device leaves this one as it is.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  friend bp_stream* current_stream(const bp_target& target);
  const bp_target* target_;
  bp_stream* stream_;
  StreamGuard* outer_;
};

// The stream of the innermost StreamGuard of this thread for the device, or NULL for its default
// stream, as all functions of backplane/host.h take it.
bp_stream* current_stream(const bp_target& target);

// Blocks until the work of this thread's current stream has ended, and throws its failure.
void synchronize_stream(Device device);

}  // namespace bp
