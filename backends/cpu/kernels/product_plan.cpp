#include "backends/cpu/kernels/product_plan.hpp"

#include <algorithm>
#include <string_view>

#include "backends/cpu/kernels/dnnl_program.hpp"
#include "backends/cpu/kernels/plan.hpp"

namespace bp::kernels {
namespace {

using dnnl::memory;

// Beyond these the packing inside of a product is a small part of it; and of one row oneDNN reads
// the weight as it is.
constexpr int64_t kFewestRows = 2, kMostRows = 512;

memory::desc desc_of(const ProductOperand& o) {
  return {{o.rows, o.cols}, memory::data_type::f32, memory::dims{o.row_stride, o.col_stride}};
}

// An inner product has its weight as (columns, depth).
memory::desc weight_desc(const ProductOperand& b) {
  return {{b.cols, b.rows}, memory::data_type::f32, memory::dims{b.col_stride, b.row_stride}};
}

std::shared_ptr<const Program> make_packer(const memory::desc& from, const memory::desc& to,
                                           int thread_count) {
  auto packer = std::make_shared<Program>(thread_count);
  const Program::Memory weight = packer->add_external(from), packed = packer->add_external(to);
  packer->add_reorder(weight, packed);
  return packer;
}

// Its externals are x, the packed weight, y and the bias.
std::shared_ptr<const Program> make_program(const Product& p, int thread_count) {
  auto program = std::make_shared<Program>(thread_count);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc x = desc_of(p.a), y = desc_of(p.y),
                     any({p.b.cols, p.b.rows}, memory::data_type::f32, memory::format_tag::any);
  memory::desc bias;
  if (p.has_bias) bias = {{p.y.cols}, memory::data_type::f32, memory::format_tag::x};
  const ThreadCountScope scope(thread_count);
  const dnnl::inner_product_forward::primitive_desc pd(
      program->engine(), dnnl::prop_kind::forward_inference, x, any, bias, y, attr);
  if (!std::string_view(pd.impl_info_str()).starts_with("brgemm")) {
    refuse_plan("oneDNN has no blocked product for this processor");
  }
  const Program::Memory x_memory = program->add_external(x),
                        weight = program->add_external(pd.weights_desc()),
                        y_memory = program->add_external(y),
                        scratch = program->add_workspace(pd.scratchpad_desc());
  std::vector<Program::Argument> arguments = {{DNNL_ARG_SRC, x_memory},
                                              {DNNL_ARG_WEIGHTS, weight},
                                              {DNNL_ARG_DST, y_memory},
                                              {DNNL_ARG_SCRATCHPAD, scratch}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, program->add_external(bias)});
  program->add_step(dnnl::inner_product_forward(pd), std::move(arguments));
  return program;
}

constexpr Program::Memory kWeight = 1;

}  // namespace

ProductPlan::ProductPlan(Product product, bool is_b_constant, const Env& env) {
  if (!is_b_constant) refuse_plan("the second factor is not constant");
  if (!is_one_dense_product(product)) refuse_plan("it is not one product of dense f32 matrices");
  if (product.y.rows < kFewestRows || product.y.rows > kMostRows) {
    refuse_plan("the product has less than 2 or more than 512 rows");
  }
  const int thread_count =
      threads_for(product.y.rows * product.y.cols * product.a.cols, env.thread_count());
  try {
    program_ = make_program(product, thread_count);
    packer_ = make_packer(weight_desc(product.b), program_->desc(kWeight), env.thread_count());
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented && e.status != dnnl_invalid_arguments) throw;
    refuse_plan("oneDNN has no blocked product for these strides");
  }
}

uint64_t ProductPlan::packed_size_bytes() const { return program_->desc(kWeight).get_size(); }

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
  static_cast<void>(is_one_dense_product(product));  // Folds as it did for prepare().
  return launch.submit([p = product, program = program_, packed, workspace = launch.workspace(),
                        thread_count = launch.thread_count()] {
    void* const externals[] = {p.a.address, packed, p.y.address, p.bias};
    program->run(externals, workspace);
    run_activation(p, thread_count);
  });
}

}  // namespace bp::kernels
