// The engines of NVIDIA's libraries on the devices of one instance. Each engine is started at its
// first use.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "backends/cuda/cublaslt.hpp"
#include "backends/cuda/cudnn.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/libraries.hpp"

namespace bp::cuda {

// The engines. The class is safe from any thread.
class Engines {
 public:
  Engines(const bp_host& host, const LibrarySearch& search);
  Engines(const Engines&) = delete;
  ~Engines();

  Libraries& libraries() { return libraries_; }

  // Returns the engine of the library on a device, whose context is current, or NULL if the library
  // is missing. Throws StatusError.
  LtEngine* lt(Device& device);
  DnnEngine* dnn(Device& device);

 private:
  struct Started {
    std::unique_ptr<LtEngine> lt;
    std::unique_ptr<DnnEngine> dnn;
  };

  Libraries libraries_;
  std::mutex mutex_;  // It guards the members below.
  std::map<Device*, Started> started_;
};

}  // namespace bp::cuda
