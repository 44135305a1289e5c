// Products by cuBLASLt, for the kernels of matmul and linear.
#pragma once

#include <algorithm>
#include <memory>

#include "backends/cuda/engines.hpp"
#include "backends/cuda/kernels/library_kernel.hpp"
#include "backends/cuda/kernels/product.hpp"

namespace bp::cuda {

// The choice for one product.
struct ChosenProduct {
  std::shared_ptr<const LtPlan> plan;  // NULL if cuBLASLt has no algorithm.
  bool is_by_columns = false;
  uint32_t loop_ndim = 0;
  // If true, the library gives the sums of 16-bit factors in f32, and a pass over them adds the
  // bias, applies the activation and rounds once.
  bool has_wide_sums = false;
};

// Chooses an algorithm. Throws StatusError, of BP_UNSUPPORTED if cuBLASLt is missing.
ChosenProduct choose_product(const Product& product, bool allows_tf32, bool is_aligned,
                             const Env& env);

// Returns the workspace of a launch: that of the algorithm, and a place for wide sums or for a
// dense bias.
uint64_t workspace_of(const Product& product, const ChosenProduct& chosen);

bp_reason supports_product(const Product& product, bool allows_tf32, bp_launch_flags flags,
                           const Env& env);

bp_status launch_product(const Product& product, const ChosenProduct& chosen, Launch& launch);

// Runs the algorithm on every matrix of the batch. The sums go where the preactivation lies, if
// there is one. `places` has the bias and the workspace.
bp_status run_library_product(const Product& product, const ChosenProduct& chosen,
                              const LtAddresses& places, Launch& launch);

// The kernel of an op that is a product. product_of() reads the frame of the op.
template <typename Args, bool kAllowsTf32>
struct ProductKernel {
  static bp_reason supports(const Args& args, bp_launch_flags flags, const Env& env) {
    if (const bp_reason reason = scaled_sum_reason(args)) return reason;
    return supports_product(product_of(args), kAllowsTf32, flags, env);
  }

  static uint64_t workspace(const Args& args, const Env& env) {
    const Product product = product_of(args);
    if (refuse_library_product(product) != nullptr) return 0;
    return workspace_of(product, choose_product(product, kAllowsTf32, is_aligned(product), env));
  }

  static bp_status launch(const Args& args, Launch& launch) {
    if (const bp_reason reason = supports(args, launch.flags(), launch)) {
      return launch.refuse(BP_UNSUPPORTED, reason);
    }
    const Product product = product_of(args);
    return launch_product(
        product, choose_product(product, kAllowsTf32, is_aligned(product), launch), launch);
  }

  // Launches may have buffers of any alignment, so the plan has a choice for aligned and one for
  // unaligned buffers.
  class Plan : public LibraryPlan {
   public:
    Plan(const Args& args, const Env& env) {
      if (const bp_reason reason = supports(args, 0, env)) refuse_plan(reason);
      const Product product = product_of(args);
      aligned_ = choose_product(product, kAllowsTf32, true, env);
      other_ = choose_product(product, kAllowsTf32, false, env);
      if (aligned_.plan == nullptr || other_.plan == nullptr) {
        refuse_plan("cuBLASLt does not take every alignment");
      }
      workspace_size_bytes_ =
          std::max(workspace_of(product, aligned_), workspace_of(product, other_));
    }

    const char* algorithm() const { return "cuBLASLt, by its heuristics"; }

    bp_status launch(const Args& args, Launch& launch) const {
      const Product product = product_of(args);
      return launch_product(product, is_aligned(product) ? aligned_ : other_, launch);
    }

   private:
    ChosenProduct aligned_, other_;
  };
};

}  // namespace bp::cuda
