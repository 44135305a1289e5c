// NVIDIA's libraries on the devices of one instance: what each has started, when it was first used.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "backends/cuda/cublaslt.hpp"
#include "backends/cuda/cudnn.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/libraries.hpp"

namespace bp::cuda {

// Safe from any thread.
class Engines {
 public:
  explicit Engines(const bp_host& host);
  Engines(const Engines&) = delete;
  ~Engines();

  Libraries& libraries() { return libraries_; }

  // Option tf32: whether products of f32 may round their factors to 10 bits, where the launch does
  // not forbid it.
  bool allows_tf32() const { return allows_tf32_; }

  // The library on a device, whose context is current; NULL if it is missing. Throws StatusError.
  LtEngine* lt(Device& device);
  DnnEngine* dnn(Device& device);

 private:
  struct Started {
    std::unique_ptr<LtEngine> lt;
    std::unique_ptr<DnnEngine> dnn;
  };

  Libraries libraries_;
  const bool allows_tf32_;
  std::mutex mutex_;  // Guards what follows.
  std::map<Device*, Started> started_;
};

}  // namespace bp::cuda
