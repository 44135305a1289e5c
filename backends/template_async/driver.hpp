// The driver of the device, as the other files of this backend use it. This is the part that you
// write. The driver here is pretended: its device is a thread that runs commands in memory of the
// host, and it is as late as a real device. Keep the declarations, and put the calls of your driver
// into driver.cpp.
//
// Rules:
//   Errors     A function throws bp::StatusError. A command that fails on the device fails in
//              finish(), with a text that names the operation and the data.
//              BP_DEVICE_LOST says that the device works no more until it is reset.
//   Threads    Any thread may call. Each CommandQueue is called by one thread at a time.
//   Ownership  A command keeps the memory that it uses alive until it has ended.
//   Loading    find_devices() must not make a context and must not start a thread, because the
//              process may still fork. It must leave the handlers of signals as they were. A
//              Context may make and start what it needs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backplane/device.h"

namespace acme_async {

// What the driver says about a device before it is opened.
struct DeviceInfo {
  std::string name;
  bp_device_class device_class;
  uint64_t memory_bytes;          // Of all buffers together.
  uint64_t max_allocation_bytes;  // Of one buffer.
};

// Returns the devices of the machine, in an order that stays the same.
std::vector<DeviceInfo> find_devices();

// An open device. All queues and buffers of it live in the context, which the first of them opens.
class Context {
 public:
  explicit Context(const DeviceInfo& info) : memory_bytes_(info.memory_bytes) {}
  Context(const Context&) = delete;

  // Memory counts what it uses with these functions. take() returns false if there is no room.
  bool take(uint64_t size_bytes);
  void give_back(uint64_t size_bytes) { used_bytes_ -= size_bytes; }
  uint64_t free_bytes() const { return memory_bytes_ - used_bytes_; }

 private:
  const uint64_t memory_bytes_;
  std::atomic<uint64_t> used_bytes_ = 0;
};

// Memory of the device.
class Memory {
 public:
  // Throws StatusError of BP_OUT_OF_MEMORY.
  Memory(std::shared_ptr<Context> context, uint64_t size_bytes);
  ~Memory();
  Memory(const Memory&) = delete;

  // A number for the first byte. The ranges of two living memories do not overlap. Hosts never see
  // it, so a driver without addresses counts: each memory gets the next range of numbers.
  uint64_t address() const { return reinterpret_cast<uintptr_t>(bytes_.get()); }
  uint64_t size_bytes() const { return size_bytes_; }

  std::byte* bytes() { return bytes_.get(); }  // For the commands alone.

 private:
  const std::shared_ptr<Context> context_;
  const uint64_t size_bytes_;
  const std::unique_ptr<std::byte[]> bytes_;
};

// A place in memory.
struct Place {
  std::shared_ptr<Memory> memory;
  uint64_t byte_offset = 0;
};

// A queue of the device, which runs its commands in order. A call hands a command over and returns;
// finish() waits.
class CommandQueue {
 public:
  explicit CommandQueue(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~CommandQueue();
  CommandQueue(const CommandQueue&) = delete;

  // The two ranges do not overlap, or are the same.
  void copy(const Place& dst, const Place& src, uint64_t size_bytes);

  // The bytes at `src` and `dst` stay valid until the command has ended, because `kept` is kept or
  // the caller waits.
  void write(const Place& dst, const std::byte* src, uint64_t size_bytes,
             std::shared_ptr<const void> kept);
  void read(std::byte* dst, const Place& src, uint64_t size_bytes,
            std::shared_ptr<const void> kept);

  // pattern_size_bytes is a number from 1 to 16, such as 3, and size_bytes is a multiple of it. The
  // offset may be any number.
  void fill(const Place& dst, uint64_t size_bytes, const std::byte* pattern,
            uint64_t pattern_size_bytes);

  // Runs a kernel. What `task` throws is a failure on the device. A real driver takes a function of
  // the device and its arguments here.
  void run(std::function<void()> task);

  // Waits until all commands have ended. Throws the first failure since the last call.
  void finish();

 private:
  void work();

  const std::shared_ptr<Context> context_;
  std::mutex mutex_;  // It guards the members below.
  std::condition_variable changed_;
  std::deque<std::function<void()>> commands_;
  bool is_running_ = false, is_stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace acme_async
