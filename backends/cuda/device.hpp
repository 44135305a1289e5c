// One device as one instance sees it: its properties, its context, and its handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/bad_data.hpp"
#include "backends/cuda/device_limits.hpp"
#include "backends/cuda/inventory.hpp"
#include "backplane/memory.h"
#include "backplane/shell/handles.hpp"

namespace bp::cuda {

struct Buffer;
struct Event;
struct OwnedMemory;
struct Semaphore;
struct Stream;
class Lane;
class NativeEvent;
class StagingBlocks;

class Device : public DeviceHandles<Stream, Lane, Buffer, Event, Semaphore> {
 public:
  Device(Instance& instance, const Site& site);
  Device(const Device&) = delete;
  ~Device();

  Instance& owner() const { return instance_; }
  const Driver& driver() const { return instance_.driver; }

  // What CUDA says of it, asked at the first call. Throw StatusError.
  int ordinal() {
    open();
    return ordinal_;
  }
  const DeviceLimits& limits() {
    open();
    return limits_;
  }
  const bp_device_properties& properties() {
    open();
    return properties_;
  }
  const bp_heap& heap(size_t index) {
    open();
    return heaps_[index];
  }
  bool is_open() const { return is_open_.load(std::memory_order_acquire); }
  static constexpr size_t kHeapCount = 2;

  // The primary context, which the first call makes. Throws CudaError.
  CUcontext context();
  bool has_context() const { return context_.load(std::memory_order_acquire) != nullptr; }

  // is_lost() returns whether an error occurred from which CUDA does not recover.
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }
  const std::string& loss() const { return loss_; }

  // Runs body(driver), which ends something, with the context. Nothing is left to end where that
  // fails: the context is gone, and what it had with it.
  template <typename Body>
  void quietly(Body&& body) noexcept;

  // Takes note of a failed call of CUDA on this device.
  void note(const CudaError& error);

  Stream* default_stream();
  Stream* create_stream(int32_t priority);
  void destroy_stream(Stream* stream);  // It also sweeps.

  // A handle for a CUDA stream: of the lane that another handle has, or of a new one, which leaves
  // the CUDA stream as it is.
  Stream* wrap_stream(cudaStream_t native);

  // Keeps what a thread that may not call CUDA was the last to need, until sweep().
  void bury(std::shared_ptr<Lane> lane);
  void sweep();

  // Calls end() once the work submitted to `stream` so far has ended; sweep() looks. If no event
  // can be made, it is called when the handles end. Never fails.
  void end_later(std::function<void()> end, cudaStream_t stream);

  // Calls end() when the handles end.
  void end_with_handles(std::function<void()> end);

  // The stream that a Recorder captures on, and what guards it. Throws CudaError.
  std::mutex& recording_mutex() { return recording_; }
  std::shared_ptr<Lane> recorder();

  StagingBlocks& staging() { return *staging_; }

  // Waits until CUDA has done all that was submitted to it. Returns false if timeout_ns passed
  // first. Work that a stream holds back waits for the host, and does not count.
  bool settle(uint64_t timeout_ns) const;

  // Ends what the host has made and not ended. Nothing uses it any more.
  void end_handles();

  // Two buffers that own their memory never overlap: add() returns false, and adds nothing, if
  // `buffer` would overlap another one.
  using DeviceHandles::add;
  bool add(Buffer* buffer);

  // Where memory comes from, and the stream on which it does; NULL: cudaMalloc. Throws CudaError.
  cudaMemPool_t pool();
  cudaStream_t memory_stream();

  // Allows blocks of `kernel` so much shared memory, which is more than they have without a
  // request. Asks CUDA only for more than was allowed before. The context is current.
  cudaError_t allow_shared_bytes(const void* kernel, size_t bytes);

  // A word of host memory that kernels of this device write to: 0, and nobody else's until it is
  // given back, when no kernel may write to it any more. take_bad_data_report() throws CudaError.
  BadDataReport* take_bad_data_report();
  void give_back(BadDataReport* report);

  // Lets this device reach the memory of `peer` without staging, if it can. Throws CudaError.
  void enable_peer(Device& peer);

 private:
  struct Ending;

  static bool has_come(const Ending& ending);
  void open();
  void set_limits(const cudaDeviceProp& properties);
  void set_properties(const cudaDeviceProp& properties);
  void make_pool();

  Instance& instance_;
  const std::string name_, bus_id_;
  std::atomic<bool> is_open_ = false;
  int ordinal_;
  DeviceLimits limits_;
  bp_heap heaps_[kHeapCount]{};
  bp_device_properties properties_{};
  bool has_pool_ = false;

  std::mutex opening_;  // Guards making the members below; never taken with `mutex_`.
  std::atomic<CUcontext> context_ = nullptr;
  std::atomic<cudaMemPool_t> pool_ = nullptr;
  cudaStream_t memory_stream_ = nullptr;
  std::unordered_set<const Device*> peers_;
  const std::unique_ptr<StagingBlocks> staging_;

  std::mutex recording_;  // It guards the members below.
  std::shared_ptr<Lane> recorder_;

  std::mutex reports_mutex_;  // It guards the members below.
  std::vector<void*> report_pages_;
  std::vector<BadDataReport*> free_reports_;

  std::atomic<bool> is_lost_ = false;
  std::mutex mutex_;  // It guards the members below.
  std::string loss_;
  std::vector<std::shared_ptr<Lane>> buried_;
  std::vector<std::unique_ptr<Ending>> endings_;
  std::vector<std::function<void()>> kept_;  // Ends without an event.

  std::mutex shared_mutex_;                               // It guards the member below.
  std::unordered_map<const void*, size_t> shared_bytes_;  // What was allowed, by kernel.
};

// The device's context is the calling thread's while this lives; then what was before is again.
class Current {
 public:
  explicit Current(Device& device);
  Current(const Current&) = delete;
  ~Current();

 private:
  const Driver& driver_;
  CUcontext previous_ = nullptr;
  bool is_changed_ = false;
};

template <typename Body>
void Device::quietly(Body&& body) noexcept {
  try {
    const Current current(*this);
    body(driver());
    driver().cudaGetLastError();
  } catch (const CudaError&) {
  }
}

// Refuses a call on a lost device, for lookup.hpp of the shell. No reset brings the device back.
[[noreturn]] inline void refuse_lost(const Device& device, const char* call, const std::string&) {
  refuse(BP_DEVICE_LOST, std::string(call) + ": " + device.loss());
}

// Returns the device behind a handle for the entry `call`. Throws StatusError if the handle is not
// a device of this instance, or if the device is lost.
inline Device& device_of(const Instance& i, bp_device* handle, const char* call,
                         const char* what = "device") {
  return Cards<Instance, Device>::device_of(i, handle, call, what);
}

// Returns the bytes of host memory that are free.
uint64_t free_host_bytes();

}  // namespace bp::cuda
