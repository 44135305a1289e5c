// Everything that the kernels of this backend know of it: where elements lie, the CUDA stream that
// takes the work, how work fails, and what the device can do.
//
// A kernel's launch function reads the frame, and submits through its Launch. It may also be called
// only to learn whether the launch would be accepted, when a graph is recorded or the stream is
// held back. Launch::launch() and Launch::call() then do nothing.
//
// The classes of the host's side are only named here, because their headers are half of what the
// compiler reads for a small kernel. A kernel that calls a library includes what it uses of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "backends/cuda/address.hpp"
#include "backends/cuda/bad_data.hpp"
#include "backends/cuda/device_limits.hpp"
#include "backends/cuda/dialect.hpp"
#include "backplane/kernel.h"
#include "backplane/ops.h"
#include "backplane/shell/shape.hpp"

namespace bp::cuda {

class Device;
class Engines;
class Lane;
struct Driver;
struct Instance;
struct Options;

// Returns the address of the first element. The address has no meaning if the tensor has no
// elements.
template <typename T>
T* data(const bp_tensor& t) {
  return reinterpret_cast<T*>(address_of({t.buffer, t.byte_offset, 0}));
}

// What a kernel knows of its backend, also when nothing is launched.
class Env {
 public:
  Env(Instance& instance, Device& device) : instance_(instance), device_(device) {}

  // Runs body(const Env&) for a function of `kernel` that launches nothing, and turns exceptions
  // into a status.
  template <typename Body>
  static bp_status with(const bp_kernel& kernel, bp_device* device, Body&& body) {
    return guarded(host_of(kernel), [&]() -> bp_status { return body(of(kernel, device)); });
  }

  // Returns the Env of a device, for a function of `kernel`; empty if the device is not of this
  // backend.
  static std::optional<Env> find(const bp_kernel& kernel, bp_device* device);

  Instance& instance() const { return instance_; }
  Device& device() const { return device_; }
  const Driver& driver() const;
  Engines& engines() const;
  const Options& options() const;
  const DeviceLimits& limits() const;

 protected:
  static const bp_host& host_of(const bp_kernel& kernel);

  // Throws StatusError if the device is not of this backend.
  static Env of(const bp_kernel& kernel, bp_device* device);

  Instance& instance_;
  Device& device_;
};

// One launch: what a kernel has besides the arguments of its op. The device's context is current.
class Launch : public Env {
 public:
  enum class Mode {
    kNow,    // Submits in the host's call.
    kHeld,   // Submits on a thread of the backend, when the stream goes on.
    kCheck,  // Submits nothing.
  };
  Launch(Instance& instance, Lane& lane, const bp_kernel& kernel, const bp_launch& launch,
         Mode mode);

  cudaStream_t stream() const { return stream_; }

  // Returns whether the launch submits nothing and only says whether it would be accepted.
  bool only_checks() const { return mode_ == Mode::kCheck; }

  bp_launch_flags flags() const { return launch_.flags; }

  // Returns the scratch memory that workspace_size() asked for. Its address is a multiple of 256
  // bytes.
  template <typename T = std::byte>
  T* workspace() const {
    return reinterpret_cast<T*>(address_of(launch_.workspace));
  }
  const bp_buffer_ref& workspace_ref() const { return launch_.workspace; }

  // Returns the plan that prepare() made for this frame, or NULL.
  bp_plan* plan() const { return launch_.plan; }

  // Returns the address where the constant arguments are packed.
  std::byte* packed(const bp_buffer_ref& range) const { return address_of(range); }

  // An argument for a kernel that checks the indices of `argument`, which are to be from 0 to below
  // `extent`: report() on the device makes one a failure of the stream. One per launch of the
  // device's kernel.
  Reporter reporter(const bp_tensor& indices, const char* argument, int64_t extent) const;

  // Launches `kernel`, a __global__ function, with pointers to its arguments. An empty grid
  // launches nothing. It requests dynamic shared memory above 48 KiB.
  bp_status launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   void** args) const;

  // Launches `kernel` with the arguments themselves, which are converted as in a call.
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

  // Sets each of `size_bytes` bytes of device memory to `byte`.
  bp_status fill(void* at, uint8_t byte, size_t size_bytes) const;

  // Runs body(), which submits to stream() by other means, such as a library's call, and returns a
  // bp_status.
  template <typename Body>
  bp_status call(Body&& body) const {
    return only_checks() ? bp_status{BP_OK} : std::forward<Body>(body)();
  }

  // Returns BP_OK for cudaSuccess, else the failure with its text, also if the device is lost.
  bp_status checked(cudaError_t error, const char* what) const;

  // Refuses the launch: returns `status`, with the text in the thread's error slot.
  bp_status refuse(bp_status status, const std::string& text) const;
  const std::string& refusal() const { return refusal_; }

 private:
  Lane& lane_;
  const cudaStream_t stream_;
  const bp_kernel& kernel_;
  const bp_launch& launch_;
  const Mode mode_;
  mutable std::string refusal_;
};

// The body of a launch, which reads the frame and submits through `launch`.
using LaunchBody = bp_status (*)(const bp_kernel& kernel, const void* args, Launch& launch);

// Runs `body` for a launch that the host made. It runs at once, or later if the stream is held
// back. If a graph is recorded, it only checks the launch.
bp_status run_launch(const bp_kernel* kernel, const bp_launch* launch, const void* args,
                     LaunchBody body);

}  // namespace bp::cuda
