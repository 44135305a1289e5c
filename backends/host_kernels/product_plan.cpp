#include "backends/host_kernels/product_plan.hpp"

#include <algorithm>

#include "backends/host_kernels/inner_product.hpp"

namespace bp::kernels {
namespace {

// With more rows the packing takes only a small part of the product's time. For one row oneDNN
// reads the weight without packing.
constexpr int64_t kFewestRows = 2, kMostRows = 512;

}  // namespace

ProductPlan::ProductPlan(Product product, bool is_b_constant, const Env& env) {
  if (!is_b_constant) refuse_plan("the second factor is not constant");
  if (!is_one_dense_product(product)) refuse_plan("it is not one product of dense f32 matrices");
  if (product.y.rows < kFewestRows || product.y.rows > kMostRows) {
    refuse_plan("the product has less than 2 or more than 512 rows");
  }
  if (product.y.cols == 1) refuse_plan("the second factor is a vector, which is read as it lies");
  const int thread_count =
      threads_for(product.y.rows * product.y.cols * product.a.cols, env.thread_count());
  try {
    program_ = make_inner_product(product, any_weight(product.b), thread_count);
    packer_ = make_packer(weight_desc(product.b), program_->desc(kInnerProductWeight),
                          env.thread_count());
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented && e.status != dnnl_invalid_arguments) throw;
    refuse_plan("oneDNN has no blocked product for these strides");
  }
}

uint64_t ProductPlan::packed_size_bytes() const {
  return program_->desc(kInnerProductWeight).get_size();
}

uint64_t ProductPlan::workspace_size_bytes() const {
  return std::max(program_->workspace_size_bytes(), packer_->workspace_size_bytes());
}

bp_status ProductPlan::pack(const Product& product, const Launch& launch, std::byte* packed) const {
  std::byte* const workspace = launch.workspace();
  return launch.submit([packer = packer_, weight = product.b.address, packed, workspace] {
    void* const externals[] = {weight, packed};
    packer->run(externals, workspace);
  });
}

bp_status ProductPlan::launch(Product product, const Launch& launch, std::byte* packed) const {
  static_cast<void>(is_one_dense_product(product));  // It folds as prepare() did.
  return launch.submit([p = product, program = program_, packed, workspace = launch.workspace(),
                        thread_count = launch.thread_count()] {
    void* const externals[] = {p.a.address, packed, p.y.address, p.bias};
    program->run(externals, workspace);
    run_activation(p, thread_count);
  });
}

}  // namespace bp::kernels
