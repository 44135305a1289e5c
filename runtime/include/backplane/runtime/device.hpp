// Devices, streams, events, and the generators of random numbers.
//
//   bp::Device device("npu:0");          // Loads a backend that has the device, if none is loaded.
//   bp::Stream copies(device);
//   bp::StreamGuard guard(copies);       // Until the end of the scope, this thread's work for the
//                                        // device goes to `copies`.
//
// Rules for everything here, unless it says otherwise:
//   Threads    Safe from any thread, but not while an object is moved or destroyed.
//   Blocking   Never waits for a device.
//   Errors     Throws bp::Error. Destructors throw nothing: call synchronize() first to learn of
//              failed work.
//   Ownership  Stream and Event own their handle and can only be moved. A Device is a name: it may
//              be copied freely, and lives as long as the registry it came from.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "backplane/host.h"

namespace bp {

class Tensor;

// Returns the registry that Device("...") loads backends into. The first call makes it. It is never
// destroyed, since tensors may live until the process ends.
bp_registry* default_registry();

// The state of a Philox generator: a seed, and how much of its sequence has been used.
class Generator {
 public:
  struct Range {
    uint64_t seed;
    uint64_t offset;  // The first block that only the caller of take() has. A block has four words.
    std::shared_ptr<const Tensor> seed_tensor = nullptr;  // If it is given, it holds the seed.
  };

  explicit Generator(uint64_t seed) : seed_(seed) {}

  // Begins the sequence of `seed` again.
  void set_seed(uint64_t seed, uint64_t offset = 0);

  // Does the same for the seed that `seed`, one u64, holds when the random ops run. Replays of a
  // captured graph draw other numbers after each change of its element. The tensor is kept, and
  // state() has it in place of a seed.
  void set_seed(const Tensor& seed);

  // Returns the present state, which set_seed() takes back.
  Range state() const;

  // Takes the next `block_count` blocks out of the sequence.
  Range take(uint64_t block_count);

  // Gives `range` of `block_count` blocks back, if nothing was taken behind it since.
  void give_back(const Range& range, uint64_t block_count);

 private:
  mutable std::mutex mutex_;
  uint64_t seed_;
  uint64_t offset_ = 0;
  std::shared_ptr<const Tensor> seed_tensor_;
};

class Device {
 public:
  // Finds "vendor.backend:0", "backend:0" or "backend" (its first device) in default_registry(). If
  // no loaded backend has the device, loads the backend whose manifest has that name. Ops that the
  // device has no kernel for run on a device of class host. If none is loaded, loads the other
  // backends that are found, one after the other, until one brings such a device. A backend that
  // fails to load is passed over; bp_error_text() has the text of the latest failure.
  Device(std::string_view name);  // NOLINT: a name is a device wherever one is asked for.
  Device(const char* name) : Device(std::string_view(name)) {}  // NOLINT: as above.

  // Refers to a device of any registry. The registry must outlive all that is made on the device.
  explicit Device(const bp_target& target) : target_(&target) {}

  const bp_target& target() const { return *target_; }
  const char* name() const { return target_->name; }  // "vendor.backend:0"

  // Blocks until all streams of the device are idle.
  void synchronize() const;

  // Says in one line how the ops on this device were served: by its kernels, by decompositions, or
  // on the host. With `has_ops` a line follows for each op that did not always run on the device's
  // kernels, and below it how many calls had which reason (bp_target_reason()).
  std::string report(bool has_ops = false) const;

  // Returns the generator of the random ops on this device that are given no other.
  Generator& generator() const;

  friend bool operator==(const Device&, const Device&) = default;

 private:
  const bp_target* target_;
};

// Seeds the generators of all devices, also of devices that are first used later.
void manual_seed(uint64_t seed);

// Returns the device that this thread's innermost DeviceGuard names. Without a guard it throws
// Error.
Device current_device();

// Tensors for which no device is named are made on `device`, for this thread and scope.
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

// An ordered queue of work on one device. Destroying a stream does not wait for its work.
class Stream {
 public:
  explicit Stream(Device device, int32_t priority = 0);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  // Makes later work on this stream wait for the work submitted to `other` so far. Both streams
  // must be of one backend.
  void wait_for(const Stream& other);
  void wait_for(const Event& event);

  // Returns whether all submitted work has ended.
  bool is_idle() const;

  // Blocks until all submitted work has ended. Throws the failure of the stream, also when called
  // again, until the failure is cleared.
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

  // Captures the work submitted so far to `stream`, or to the current stream of the device.
  void record(const Stream& stream);
  void record();

  bool is_done() const;

  // Blocks until the captured work has ended. Throws the failure that the event carries.
  void synchronize() const;

  // Returns the nanoseconds on the device from this event to `end`. Both events must be made with
  // BP_EVENT_TIMING.
  int64_t elapsed_ns(const Event& end) const;

  Device device() const { return device_; }
  bp_event* get() const { return handle_; }

 private:
  Device device_;
  bp_event* handle_;
};

// Sends this thread's work for the stream's device to `stream` until the end of the scope. Guards
// nest, and a guard for one device does not change the stream of another.
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

// Returns the stream of this thread's innermost StreamGuard for the device. Without a guard it
// returns NULL, which the functions of backplane/host.h take for the device's default stream.
bp_stream* current_stream(const bp_target& target);

// Blocks until the work of this thread's current stream has ended, and throws its failure.
void synchronize_stream(Device device);

}  // namespace bp
