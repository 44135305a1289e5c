// Matrix products by cuBLASLt, on one device: what the heuristics choose is kept by shape, and runs
// on the caller's stream and workspace.
//
// Every choice is deterministic and keeps its sums in the type it computes in: split products are
// added up in the workspace, never in y, and the heuristics are asked for nothing else.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "backends/cuda/library_tables.hpp"
#include "backends/cuda/plan_cache.hpp"
#include "backplane/tensor.h"

namespace bp::cuda {

// A matrix as it is stored, column after column.
struct LtMatrix {
  int64_t rows = 0, cols = 0;
  int64_t column_stride = 0, batch_stride = 0;  // In elements.
};

// d (rows, cols) = op(a) op(b) + bias for each index of a batch; bias has an element for each row.
struct LtProblem {
  bp_dtype input = 0, output = 0;
  bool allows_tf32 = false;
  bool has_bias = false;
  bool transposes_a = false, transposes_b = false;
  bool is_aligned = true;  // All matrices begin at multiples of 16 bytes; else of an element.
  int64_t batch = 1;
  LtMatrix a, b, d;
};

struct LtAddresses {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;  // Dense, at a multiple of 16 bytes.
  void* workspace = nullptr;   // At a multiple of 256 bytes.
};

// What was chosen for a problem.
struct LtPlan {
  LtProblem problem;
  cublasLtMatmulAlgo_t algorithm;
  uint64_t workspace_size_bytes;
};

// Whether cuBLASLt takes these dtypes.
bool is_lt_type(bp_dtype input, bp_dtype output);

class LtEngine {
 public:
  // Throws StatusError. The device is current on the calling thread here and in all that follows.
  explicit LtEngine(const CublasLt& library);
  ~LtEngine();
  LtEngine(const LtEngine&) = delete;

  // NULL if cuBLASLt has nothing for this problem.
  std::shared_ptr<const LtPlan> find(const LtProblem& problem);

  // Submits the product. Throws StatusError.
  void run(const LtPlan& plan, const LtAddresses& addresses, cudaStream_t stream) const;

  const PlanCache<LtPlan>& plans() const { return plans_; }

 private:
  std::shared_ptr<const LtPlan> choose(const LtProblem& problem) const;

  const CublasLt& library_;
  cublasLtHandle_t handle_ = nullptr;
  PlanCache<LtPlan> plans_;
};

}  // namespace bp::cuda
