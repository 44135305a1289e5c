// Matrix products by cuBLASLt on one device. The choice of the heuristics is kept by shape, and
// runs on the caller's stream and workspace.
//
// Every choice is deterministic and keeps its sums in its computing type. The heuristics are asked
// only for algorithms that add split products in the workspace and never in y.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cuda/dialect.hpp"
#include "backends/cuda/library_tables.hpp"
#include "backends/cuda/plan_cache.hpp"
#include "backplane/tensor.h"

namespace bp::cuda {

// A matrix that is stored column after column.
struct LtMatrix {
  int64_t rows = 0, cols = 0;
  int64_t column_stride = 0, batch_stride = 0;  // They count elements.
};

// d (rows, cols) = op(a) op(b) + bias for each index of a batch; bias has an element for each row.
struct LtProblem {
  bp_dtype input = 0, output = 0;
  bool allows_tf32 = false;
  bool has_bias = false;
  bool transposes_a = false, transposes_b = false;
  bool is_aligned = true;  // All begin at multiples of 16 bytes.
  int64_t batch = 1;
  LtMatrix a, b, d;
};

struct LtAddresses {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;  // It is dense, at a multiple of 16 bytes.
  void* workspace = nullptr;   // It is at a multiple of 256 bytes.
};

// The choice for a problem.
struct LtPlan {
  LtProblem problem;
  cublasLtMatmulAlgo_t algorithm;
  uint64_t workspace_size_bytes;
};

// Returns whether cuBLASLt takes these dtypes.
bool is_lt_type(bp_dtype input, bp_dtype output);

class LtEngine {
 public:
  // Throws StatusError. The device must be current on the calling thread, here and in all functions
  // below.
  explicit LtEngine(const CublasLt& library);
  ~LtEngine();
  LtEngine(const LtEngine&) = delete;

  // Returns the choice, or NULL if cuBLASLt has no algorithm for this problem.
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
