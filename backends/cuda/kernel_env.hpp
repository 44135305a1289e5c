// What the kernels of this backend see of it, and all they may know: where elements lie, the CUDA
// stream that takes the work, how work fails, and what the device can do.
//
// A kernel's launch function reads the frame, and submits through its Launch. It may be called
// without anything to be submitted: when a graph is recorded, or the stream is held back, to learn
// whether the launch would be accepted. Launch::launch() and Launch::call() then do nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "backends/cuda/device.hpp"
#include "backends/cuda/fault.hpp"
#include "backends/cuda/memory.hpp"
#include "backplane/kernel.h"
#include "backplane/ops.h"

namespace bp::cuda {

// Address of the first element; meaningless for a tensor without elements.
template <typename T>
T* data(const bp_tensor& t) {
  return reinterpret_cast<T*>(address_of({t.buffer, t.byte_offset, 0}));
}

// What a kernel knows of its backend, also where nothing is launched.
class Env {
 public:
  Env(Instance& instance, Device& device) : instance_(instance), device_(device) {}

  // Runs body(const Env&) for a function of `kernel` that launches nothing, and keeps exceptions
  // inside.
  template <typename Body>
  static bp_status with(const bp_kernel& kernel, bp_device* device, Body&& body) {
    Instance& i = cuda::instance(kernel.state);
    return guarded(*i.host,
                   [&]() -> bp_status { return body(Env(i, device_of(i, device, kernel.name))); });
  }

  // Of a device, for a function of `kernel`; empty if it is none of this backend.
  static std::optional<Env> find(const bp_kernel& kernel, bp_device* device) {
    Instance& i = cuda::instance(kernel.state);
    Device* const known = device_or_null(i, device);
    return known == nullptr ? std::nullopt : std::optional(Env(i, *known));
  }

  Instance& instance() const { return instance_; }
  Device& device() const { return device_; }
  const Driver& driver() const { return instance_.driver; }
  Engines& engines() const { return *instance_.engines; }
  const DeviceLimits& limits() const { return device_.limits(); }

 protected:
  Instance& instance_;
  Device& device_;
};

// What prepare() of a kernel makes; a bp_plan is a pointer to one. Counted: launches that are held
// back need it as long as the host does.
class PlanBase {
 public:
  PlanBase() = default;
  PlanBase(const PlanBase&) = delete;
  virtual ~PlanBase() = default;

  void retain() { uses_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (uses_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  std::atomic<uint32_t> uses_ = 1;
};

// One launch: what a kernel has besides the arguments of its op. The device's context is current.
class Launch : public Env {
 public:
  enum class Mode {
    kNow,    // Submits, in the host's call.
    kHeld,   // Submits, on a thread of ours, when the stream goes on.
    kCheck,  // Submits nothing.
  };
  Launch(Instance& instance, Lane& lane, const bp_kernel& kernel, const bp_launch& launch,
         Mode mode)
      : Env(instance, lane.device()), lane_(lane), kernel_(kernel), launch_(launch), mode_(mode) {}

  cudaStream_t stream() const { return lane_.native(); }

  // With true nothing is submitted: the launch shows whether it would be accepted.
  bool only_checks() const { return mode_ == Mode::kCheck; }

  bp_launch_flags flags() const { return launch_.flags; }

  // The scratch memory that workspace_size asked for; at a multiple of 256 bytes.
  template <typename T = std::byte>
  T* workspace() const {
    return reinterpret_cast<T*>(address_of(launch_.workspace));
  }
  uint64_t workspace_size_bytes() const { return launch_.workspace.size_bytes; }

  // What prepare() made for this frame, or NULL.
  bp_plan* plan() const { return launch_.plan; }

  // Where the constant arguments are packed.
  std::byte* packed(const bp_buffer_ref& range) const { return address_of(range); }

  // An argument for a kernel that checks indices, which are to be from 0 to below `extent`:
  // report(fault, index) on the device makes one a failure of the stream. One per launch of the
  // device's kernel.
  Fault fault(int64_t extent) const {
    return only_checks() ? Fault{} : lane_.next_fault(kernel_.name, extent);
  }

  // Launches `kernel`, a __global__ function, with pointers to its arguments. An empty grid
  // launches nothing. Dynamic shared memory above 48 KiB is asked for here.
  bp_status launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   void** args) const;

  // The same, with the arguments themselves, converted as a call would.
  template <typename... Params, typename... Args>
  bp_status launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                   Args&&... args) const {
    std::tuple<std::decay_t<Params>...> values(std::forward<Args>(args)...);
    return std::apply(
        [&](auto&... value) {
          void* pointers[] = {const_cast<void*>(static_cast<const void*>(&value))..., nullptr};
          return launch(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, pointers);
        },
        values);
  }

  // Runs body(), which submits to stream() by other means and returns a bp_status: a library's
  // call, cudaMemsetAsync.
  template <typename Body>
  bp_status call(Body&& body) const {
    return only_checks() ? bp_status{BP_OK} : std::forward<Body>(body)();
  }

  // BP_OK for cudaSuccess; else the failure in words, also where the device is lost.
  bp_status checked(cudaError_t error, const char* what) const;

  // Refuses the launch: returns `status`, with the text in the thread's error slot.
  bp_status refuse(bp_status status, const std::string& text) const;
  const std::string& refusal() const { return refusal_; }

 private:
  Lane& lane_;
  const bp_kernel& kernel_;
  const bp_launch& launch_;
  const Mode mode_;
  mutable std::string refusal_;
};

// What a launch does: reads the frame and submits through `launch`.
using LaunchBody = bp_status (*)(const bp_kernel& kernel, const void* args, Launch& launch);

// Runs `body` for a launch that the host made: at once; or later, for a stream that is held back;
// or, where a graph is recorded, only to check it.
bp_status run_launch(const bp_kernel* kernel, const bp_launch* launch, const void* args,
                     LaunchBody body);

// Throws StatusError if the stream of `launch` captures.
void refuse_in_capture(const bp_kernel& kernel, const bp_launch& launch, const char* call);

}  // namespace bp::cuda
