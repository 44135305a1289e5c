// Convolutions and attention by cuDNN on one device. The first engine of its heuristics that keeps
// the backend's promises is chosen, and kept by shape.
//
// Some engines are never chosen: those that are not deterministic, those that round inputs or sums
// to fewer bits, those that transform (Winograd and FFT, whose errors have no bound for each
// element), and, for f32 without TF32, those on tensor cores. The API is called directly, so that
// tests can take the place of the library, and opened libraries need no link.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/cuda/dialect.hpp"
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

// The tensors of a convolution. A run is given the address of each one.
enum class DnnConvolutionTensor : int64_t { kX = 1, kWeight, kY };

// Attention, softmax(scale * q k^T) v, over a band of keys, as cuDNN describes it. Strides are in
// elements, of (batch, heads, rows, width), and those of width are 1.
struct DnnAttention {
  bp_dtype dtype = 0;
  int64_t batches = 0, heads = 0, key_heads = 0, queries = 0, keys = 0, width = 0;
  std::array<int64_t, 4> q{}, k{}, v{}, y{};
  bool has_lse = false;  // Its strides are those of a dense tensor (batch, heads, queries).
  // Which ends of the band hide keys; whether its diagonal meets the last key at the last query,
  // and not the first key at the first query; and whether it reaches beyond the diagonal.
  bool is_bound_right = false, is_bound_left = false;
  bool is_bottom_right = false, has_right_shift = false;
};

// The tensors and numbers of attention: a run is given the address of each one that the graph has.
enum class DnnAttentionTensor : int64_t {
  kQ = 1,
  kK,
  kV,
  kY,
  kLse,
  // Numbers on the host.
  kScale,        // float
  kHiddenScore,  // float: what takes the place of the score of a key that is not seen
  kKeys,         // int32
  kQueries,      // int32
  kRightShift,   // int32: from the diagonal to the last key that is seen
  kLeftShift,    // float: key + kLeftShift > query holds for the keys that are seen
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

// Where a tensor or a number of a graph is.
struct DnnAddress {
  int64_t id = 0;
  const void* place = nullptr;

  template <typename Id>
  DnnAddress(Id its_id, const void* its_place)
      : id(static_cast<int64_t>(its_id)), place(its_place) {}
};

// What engines may do.
struct DnnPromises {
  bool allows_tensor_cores = true;
  bool allows_narrow_inputs = false;  // That inputs are rounded to fewer bits.
  bool may_compile = false;           // Allows engines that are compiled for the shape.
};

class DnnEngine {
 public:
  // The device must be current on the calling thread, here and in all functions below.
  explicit DnnEngine(const Cudnn& library);
  ~DnnEngine();
  DnnEngine(const DnnEngine&) = delete;

  // Return the choice, or NULL if cuDNN has no engine that may be used for this problem. Throw
  // StatusError. All engines for attention are compiled for the shape.
  std::shared_ptr<const DnnPlan> find(const DnnProblem& problem);
  std::shared_ptr<const DnnPlan> find(const DnnAttention& problem);

  // Returns whether the library computes attention rightly. NVIDIA/cudnn-frontend lists defects of
  // versions up to 9.14 (node/sdpa_support_surface.h).
  bool has_attention() const;

  // Submits a plan. Throws StatusError.
  void run(const DnnPlan& plan, std::span<const DnnAddress> addresses, void* workspace,
           cudaStream_t stream);

  const PlanCache<DnnPlan>& plans() const { return plans_; }

 private:
  // A handle of cuDNN has a stream, and serves one thread at a time.
  class Handle;
  cudnnHandle_t take_handle();
  void give_back(cudnnHandle_t handle);
  template <typename Problem>
  std::shared_ptr<const DnnPlan> choose(const Problem& problem, const DnnPromises& promises);

  const Cudnn& library_;
  PlanCache<DnnPlan> plans_;
  std::mutex mutex_;  // It guards the members below.
  std::vector<cudnnHandle_t> idle_;
};

// Return the graph of a problem, as the last element behind its parts; empty if the library refuses
// it.
std::vector<DnnDescriptor> make_dnn_graph(const Cudnn& library, cudnnHandle_t handle,
                                          const DnnProblem& problem);
std::vector<DnnDescriptor> make_dnn_graph(const Cudnn& library, cudnnHandle_t handle,
                                          const DnnAttention& problem);

}  // namespace bp::cuda
