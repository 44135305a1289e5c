// Products of i8 or u8 by i8 by oneDNN, whose sums of one block for each row of the weight are
// exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/host_kernels/dnnl_program.hpp"
#include "backends/host_kernels/scaled_product.hpp"
#include "backplane/shell/plan.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// Returns why such a product is not for oneDNN, or NULL. `is_packed` says that b is packed for it.
const char* scaled_library_refusal(const ScaledProduct& p, bool is_packed = false);

uint64_t scaled_library_workspace_size_bytes(const ScaledProduct& p, const Env& env);
bp_status submit_scaled_library(const ScaledProduct& p, const Launch& launch);

// Plans of matmul_scaled: the weight in the blocks that oneDNN reads.
class ScaledPlan {
 public:
  // Throws StatusError of BP_UNSUPPORTED.
  ScaledPlan(const bp_matmul_scaled_args& args, const PlanRequest& request, const Env& env);

  uint64_t packed_size_bytes() const;
  uint64_t workspace_size_bytes() const { return workspace_size_bytes_; }
  const char* algorithm() const { return "product of i8 with a packed weight"; }

  bp_status pack(const bp_matmul_scaled_args& args, const Launch& launch, std::byte* packed) const;
  bp_status launch(const bp_matmul_scaled_args& args, const Launch& launch,
                   std::byte* packed) const;

 private:
  std::shared_ptr<const Program> program_, packer_;
  uint64_t workspace_size_bytes_ = 0;
};

}  // namespace bp::kernels
