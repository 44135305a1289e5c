#include "backends/host_kernels/inner_product.hpp"

#include <string_view>
#include <utility>
#include <vector>

#include "backplane/shell/plan.hpp"

namespace bp::kernels {

using dnnl::memory;

namespace {

memory::desc desc_of(const ProductOperand& o) {
  return {{o.rows, o.cols}, memory::data_type::f32, memory::dims{o.row_stride, o.col_stride}};
}

}  // namespace

memory::desc weight_desc(const ProductOperand& b) {
  return {{b.cols, b.rows}, memory::data_type::f32, memory::dims{b.col_stride, b.row_stride}};
}

memory::desc any_weight(const ProductOperand& b) {
  return {{b.cols, b.rows}, memory::data_type::f32, memory::format_tag::any};
}

std::shared_ptr<const Program> make_packer(const memory::desc& from, const memory::desc& to,
                                           int thread_count) {
  auto packer = std::make_shared<Program>(thread_count);
  const Program::Memory weight = packer->add_external(from), packed = packer->add_external(to);
  packer->add_reorder(weight, packed);
  return packer;
}

std::shared_ptr<const Program> make_inner_product(const Product& p, const memory::desc& weight,
                                                  int thread_count) {
  auto program = std::make_shared<Program>(thread_count);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc x = desc_of(p.a), y = desc_of(p.y);
  memory::desc bias;
  if (p.has_bias) bias = {{p.y.cols}, memory::data_type::f32, memory::format_tag::x};
  const ThreadCountScope scope(thread_count);
  const dnnl::inner_product_forward::primitive_desc pd(
      program->engine(), dnnl::prop_kind::forward_inference, x, weight, bias, y, attr);
  if (!std::string_view(pd.impl_info_str()).starts_with("brgemm")) {
    refuse_plan("oneDNN has no blocked product for this processor");
  }
  const Program::Memory x_memory = program->add_external(x),
                        weight_memory = program->add_external(pd.weights_desc()),
                        y_memory = program->add_external(y),
                        scratch = program->add_workspace(pd.scratchpad_desc());
  std::vector<Program::Argument> arguments = {{DNNL_ARG_SRC, x_memory},
                                              {DNNL_ARG_WEIGHTS, weight_memory},
                                              {DNNL_ARG_DST, y_memory},
                                              {DNNL_ARG_SCRATCHPAD, scratch}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, program->add_external(bias)});
  program->add_step(dnnl::inner_product_forward(pd), std::move(arguments));
  return program;
}

}  // namespace bp::kernels
