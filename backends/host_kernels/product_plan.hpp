// Plans of matmul and linear: the weight in the blocks that the kernel reads.
//
// Without a plan, oneDNN packs b in every product. With b of 1024 columns by 1024 packed once, a
// product takes, on one processor with AVX2, 0.10 instead of 0.37 ms for 4 rows and 0.40 instead of
// 0.64 ms for 16 rows. From some hundred rows on both take the same time.
#pragma once

#include <memory>

#include "backends/host_kernels/product.hpp"
#include "backplane/shell/plan.hpp"

namespace bp::kernels {

class ProductPlan {
 public:
  // Makes the plan of a product whose addresses are not known yet. Throws StatusError of
  // BP_UNSUPPORTED.
  ProductPlan(Product product, bool is_b_constant, const Env& env);

  uint64_t packed_size_bytes() const;
  uint64_t workspace_size_bytes() const;
  const char* algorithm() const { return "inner product with a packed weight"; }

  bp_status pack(const Product& product, const Launch& launch, std::byte* packed) const;
  bp_status launch(Product product, const Launch& launch, std::byte* packed) const;

 private:
  std::shared_ptr<const Program> program_, packer_;
};

// The plan of an op that is a product. product_of() reads the frame of the op, and the weight is
// the second tensor argument.
template <typename Args, Product (*product_of)(const Args&)>
class ProductOpPlan : private ProductPlan {
 public:
  ProductOpPlan(const Args& args, const PlanRequest& request, const Env& env)
      : ProductPlan(product_of(plain(args)), request.is_constant(1), env) {}

  using ProductPlan::algorithm, ProductPlan::packed_size_bytes, ProductPlan::workspace_size_bytes;

  bp_status pack(const Args& args, const Launch& launch, std::byte* packed) const {
    return ProductPlan::pack(product_of(args), launch, packed);
  }
  bp_status launch(const Args& args, const Launch& launch, std::byte* packed) const {
    return ProductPlan::launch(product_of(args), launch, packed);
  }

 private:
  static const Args& plain(const Args& args) {
    if (const bp_reason reason = scaled_sum_reason(args)) throw StatusError(BP_UNSUPPORTED, reason);
    return args;
  }
};

}  // namespace bp::kernels
