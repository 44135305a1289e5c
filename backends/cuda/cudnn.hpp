// Convolutions by cuDNN on one device. A graph of cuDNN has one operation. The first engine of its
// heuristics that keeps the backend's promises is chosen, and kept by shape.
//
// Some engines are never chosen: those that are not deterministic, those that round inputs or sums
// to fewer bits, those that transform (Winograd and FFT, whose errors have no bound for each
// element), and, for f32 without TF32, those on tensor cores. The API is called directly, because
// cudnn-frontend is made for larger graphs, and would not make one operation shorter.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cuda/library_tables.hpp"
#include "backends/cuda/plan_cache.hpp"
#include "backplane/tensor.h"

namespace bp::cuda {

enum class DnnDirection { kForward, kBackwardInput, kBackwardWeight };

// A tensor (batch or outputs, channels, spatial) with its strides in elements.
struct DnnTensor {
  std::array<int64_t, 5> shape{}, strides{};
};

// A cross-correlation. The direction says whether y, x or weight is computed.
struct DnnProblem {
  DnnDirection direction = DnnDirection::kForward;
  bp_dtype dtype = 0;
  bool allows_tf32 = false;
  bool adds = false;         // Adds to the values in the result.
  bool may_compile = false;  // Allows engines compiled for the shape.
  bool is_aligned = true;    // All tensors begin at multiples of 16 bytes; else of an element.
  int ndim = 0;              // The rank of the tensors.
  DnnTensor x, weight, y;
  std::array<int64_t, 3> stride{}, dilation{}, low{}, high{};
};

class DnnDescriptor;

// The choice for a problem, ready to run.
class DnnPlan {
 public:
  DnnPlan(std::vector<DnnDescriptor> descriptors, uint64_t its_workspace_size_bytes);
  DnnPlan(const DnnPlan&) = delete;
  ~DnnPlan();

  uint64_t workspace_size_bytes() const { return workspace_size_bytes_; }
  cudnnBackendDescriptor_t get() const;

  // Only one thread at a time runs a plan, because not every engine of cuDNN allows more.
  std::mutex& mutex() const { return mutex_; }

 private:
  mutable std::mutex mutex_;
  std::vector<DnnDescriptor> descriptors_;  // The last one is the plan, which uses the others.
  uint64_t workspace_size_bytes_;
};

struct DnnAddresses {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* y = nullptr;
  void* workspace = nullptr;
};

class DnnEngine {
 public:
  // The device must be current on the calling thread, here and in all functions below.
  explicit DnnEngine(const Cudnn& library);
  ~DnnEngine();
  DnnEngine(const DnnEngine&) = delete;

  // Returns the choice, or NULL if cuDNN has no engine that may be used for this problem. Throws
  // StatusError.
  std::shared_ptr<const DnnPlan> find(const DnnProblem& problem);

  // Submits the convolution. Throws StatusError.
  void run(const DnnPlan& plan, const DnnAddresses& addresses, cudaStream_t stream);

  const PlanCache<DnnPlan>& plans() const { return plans_; }

 private:
  // A handle of cuDNN has a stream, and serves one thread at a time.
  class Handle;
  cudnnHandle_t take_handle();
  void give_back(cudnnHandle_t handle);
  std::shared_ptr<const DnnPlan> choose(const DnnProblem& problem);

  const Cudnn& library_;
  PlanCache<DnnPlan> plans_;
  std::mutex mutex_;  // It guards the members below.
  std::vector<cudnnHandle_t> idle_;
};

}  // namespace bp::cuda
