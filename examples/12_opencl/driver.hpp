// The driver of the device, as the other files of this backend use it: OpenCL 1.2 and newer.
//
// Rules:
//   Errors     A function throws bp::StatusError. A command that fails on the device fails in
//              finish(), with a text that names the operation and the data.
//              BP_DEVICE_LOST says that the device works no more until it is reset.
//   Threads    Any thread may call. Each CommandQueue is called by one thread at a time.
//   Ownership  A command keeps the memory that it uses alive until it has ended: OpenCL does.
//   Loading    find_devices() must not make a context and must not start a thread, because the
//              process may still fork. A Context may do both.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backplane/device.h"

namespace acme_opencl {

// What the driver says about a device before it is opened.
struct DeviceInfo {
  std::string name;
  bp_device_class device_class;
  uint64_t memory_bytes;          // Of all buffers together.
  uint64_t max_allocation_bytes;  // Of one buffer.
  uint64_t compute_units;
  bool has_f64;
  bool has_exact_division;  // f32 divisions and square roots are rounded correctly if asked for.
  cl_device_id id;
};

// Returns the devices of the machine, in an order that stays the same.
std::vector<DeviceInfo> find_devices();

// An open device. All queues and buffers of it live in the context, which the first of them opens.
class Context {
 public:
  explicit Context(const DeviceInfo& info);
  ~Context();
  Context(const Context&) = delete;

  cl_context handle() const { return context_; }
  cl_device_id device() const { return info_.id; }

  // Returns the built program of a source. The first call builds it.
  cl_program program(const std::string& source);

  // Memory counts what it uses with these functions. take() returns false if there is no room.
  bool take(uint64_t size_bytes);
  void give_back(uint64_t size_bytes) { used_bytes_ -= size_bytes; }
  uint64_t free_bytes() const { return info_.memory_bytes - used_bytes_; }

  // Returns the first of size_bytes numbers that no other memory has.
  uint64_t take_addresses(uint64_t size_bytes);

 private:
  const DeviceInfo info_;
  cl_context context_ = nullptr;
  std::atomic<uint64_t> used_bytes_ = 0, next_address_ = 4096;
  std::mutex mutex_;  // It guards `programs_`.
  std::unordered_map<std::string, cl_program> programs_;
};

// Memory of the device.
class Memory {
 public:
  // Throws StatusError of BP_OUT_OF_MEMORY.
  Memory(std::shared_ptr<Context> context, uint64_t size_bytes);
  ~Memory();
  Memory(const Memory&) = delete;

  // A number for the first byte. The ranges of two living memories do not overlap. OpenCL has no
  // addresses, so this counts.
  uint64_t address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }

  cl_mem handle() const { return handle_; }

 private:
  const std::shared_ptr<Context> context_;
  const uint64_t size_bytes_, address_;
  cl_mem handle_ = nullptr;
};

// A place in memory.
struct Place {
  std::shared_ptr<Memory> memory;
  uint64_t byte_offset = 0;
};

// One launch of a kernel: the source of its program, its name, its arguments and its size.
class Call {
 public:
  // What a kernel that found bad data says, from the two numbers that it left.
  using FailureText = std::function<std::string(int64_t position, int64_t value)>;

  Call(std::string source, const char* kernel) : source_(std::move(source)), kernel_(kernel) {}

  Call& buffer(const Place& place) {
    arguments_.push_back({place.memory, {}});
    return *this;
  }
  template <typename T>
  Call& value(const T& value) {
    std::vector<std::byte> bytes(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof(T));
    arguments_.push_back({nullptr, std::move(bytes)});
    return *this;
  }
  // Adds two last arguments, a buffer and a number, with which the kernel reports bad data.
  Call& checked(FailureText text) {
    failure_text_ = std::move(text);
    return *this;
  }
  // One item for each of `count`, in groups of 64.
  Call& over(int64_t count) { return groups((count + 63) / 64, 1, 1, 64, 1); }
  Call& groups(int64_t x, int64_t y, int64_t z, size_t local_x, size_t local_y) {
    local_ = {local_x, local_y, 1};
    global_ = {static_cast<size_t>(x) * local_x, static_cast<size_t>(y) * local_y,
               static_cast<size_t>(z)};
    return *this;
  }

 private:
  friend class CommandQueue;
  struct Argument {
    std::shared_ptr<Memory> memory;
    std::vector<std::byte> bytes;  // Empty for a buffer, which may be NULL.
  };
  std::string source_;
  const char* kernel_;
  std::vector<Argument> arguments_;
  FailureText failure_text_;
  std::array<size_t, 3> global_{}, local_{1, 1, 1};
};

// A queue of the device, which runs its commands in order. A call hands a command over and returns;
// finish() waits.
class CommandQueue {
 public:
  explicit CommandQueue(std::shared_ptr<Context> context);
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

  // size_bytes is a multiple of pattern_size_bytes, which is at most 16.
  void fill(const Place& dst, uint64_t size_bytes, const std::byte* pattern,
            uint64_t pattern_size_bytes);

  // Runs a kernel. A call without items does nothing.
  void run(const Call& call);

  // Waits until all commands have ended. Throws the first failure since the last call.
  void finish();

 private:
  struct Command {
    cl_event event;
    const char* name;
    std::shared_ptr<const void> kept;
  };
  // What a kernel writes if it finds bad data. `number` says which call it was, from 1 on.
  struct Failure {
    int32_t number = 0, reserved = 0;
    int64_t position = 0, value = 0;
  };

  void add(cl_event event, const char* name, std::shared_ptr<const void> kept = nullptr);
  cl_kernel kernel(const Call& call);
  void set_failure_arguments(cl_kernel kernel, const Call& call);
  void reset_failure();

  const std::shared_ptr<Context> context_;
  cl_command_queue queue_ = nullptr;
  std::unordered_map<std::string, cl_kernel> kernels_;
  std::vector<Command> commands_;  // Since the last wait.
  cl_mem failure_ = nullptr;
  std::vector<Call::FailureText> failure_texts_;  // Of the checked calls since the last wait.
};

}  // namespace acme_opencl
