// Convolutions by cuDNN, on one device: its graph API is given one operation, and the engine that
// its heuristics name first, of those that keep the backend's promises, is kept by shape.
//
// Left out are engines that are not deterministic, that round inputs or sums to fewer bits, that
// transform (Winograd, FFT: their errors are not bounded element by element), and, for f32 without
// TF32, those on tensor cores. The API is called directly: cudnn-frontend builds larger graphs, and
// of one operation would leave what is here.
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

// A tensor (batch or outputs, channels, spatial), with the strides of its elements.
struct DnnTensor {
  std::array<int64_t, 5> shape{}, strides{};
};

// A cross-correlation. What is computed is y, x or weight, by the direction.
struct DnnProblem {
  DnnDirection direction = DnnDirection::kForward;
  bp_dtype dtype = 0;
  bool allows_tf32 = false;
  bool adds = false;         // To what the result holds.
  bool may_compile = false;  // Engines that are compiled for the shape count too.
  bool is_aligned = true;    // All tensors begin at multiples of 16 bytes; else of an element.
  int ndim = 0;              // Of the tensors.
  DnnTensor x, weight, y;
  std::array<int64_t, 3> stride{}, dilation{}, low{}, high{};
};

class DnnDescriptor;

// What was chosen for a problem, ready to run.
class DnnPlan {
 public:
  DnnPlan(std::vector<DnnDescriptor> descriptors, uint64_t its_workspace_size_bytes);
  DnnPlan(const DnnPlan&) = delete;
  ~DnnPlan();

  uint64_t workspace_size_bytes() const { return workspace_size_bytes_; }
  cudnnBackendDescriptor_t get() const;

  // One thread runs it at a time: cuDNN does not promise more of every engine.
  std::mutex& mutex() const { return mutex_; }

 private:
  mutable std::mutex mutex_;
  std::vector<DnnDescriptor> descriptors_;  // The plan is the last one; the others belong to it.
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
  // The device is current on the calling thread here and in all that follows.
  explicit DnnEngine(const Cudnn& library);
  ~DnnEngine();
  DnnEngine(const DnnEngine&) = delete;

  // NULL if cuDNN has no engine for this problem that may be used. Throws StatusError.
  std::shared_ptr<const DnnPlan> find(const DnnProblem& problem);

  // Submits the convolution. Throws StatusError.
  void run(const DnnPlan& plan, const DnnAddresses& addresses, cudaStream_t stream);

  const PlanCache<DnnPlan>& plans() const { return plans_; }

 private:
  // A handle holds a stream, and serves one thread at a time.
  class Handle;
  cudnnHandle_t take_handle();
  void give_back(cudnnHandle_t handle);
  std::shared_ptr<const DnnPlan> choose(const DnnProblem& problem);

  const Cudnn& library_;
  PlanCache<DnnPlan> plans_;
  std::mutex mutex_;  // Guards what follows.
  std::vector<cudnnHandle_t> idle_;
};

}  // namespace bp::cuda
