#include "backends/host_kernels/scaled_library.hpp"

#include <algorithm>

#include "backends/host_kernels/inner_product.hpp"
#include "backplane/shell/boundary.hpp"

namespace bp::kernels {
namespace {

using dnnl::memory;

// With fewer rows run_scaled_rows() is faster, unless the weight is packed: it reads the weight
// once.
constexpr int64_t kFewestRows = 8;

constexpr Program::Memory kWeight = 1;  // The number of the weight among the memories.

memory::desc plain_weight(const ScaledProduct& p) {
  const int64_t stride = p.cols == 1 ? p.depth : p.b_row_bytes;
  return {{p.depth, p.cols}, memory::data_type::s8, memory::dims{1, stride}};
}

memory::desc any_weight(const ScaledProduct& p) {
  return {{p.depth, p.cols}, memory::data_type::s8, memory::format_tag::any};
}

memory::data_type dnnl_dtype_of_a(const ScaledProduct& p) {
  return p.a_dtype == BP_U8 ? memory::data_type::u8 : memory::data_type::s8;
}

// Makes a program whose externals are a, the weight and the sums.
std::shared_ptr<const Program> make_program(const ScaledProduct& p, const memory::desc& weight,
                                            int thread_count) {
  auto program = std::make_shared<Program>(thread_count);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const ThreadCountScope scope(thread_count);
  const dnnl::matmul::primitive_desc pd(
      program->engine(),
      memory::desc({p.rows, p.depth}, dnnl_dtype_of_a(p), memory::format_tag::ab), weight,
      memory::desc({p.rows, p.cols}, memory::data_type::s32, memory::format_tag::ab), attr);
  const Program::Memory a = program->add_external(pd.src_desc()),
                        b = program->add_external(pd.weights_desc()),
                        sums = program->add_external(pd.dst_desc()),
                        scratch = program->add_workspace(pd.scratchpad_desc());
  program->add_step(dnnl::matmul(pd), {{DNNL_ARG_SRC, a},
                                       {DNNL_ARG_WEIGHTS, b},
                                       {DNNL_ARG_DST, sums},
                                       {DNNL_ARG_SCRATCHPAD, scratch}});
  return program;
}

int threads_of(const ScaledProduct& p, const Env& env) {
  return threads_for(p.rows * p.cols * p.depth, env.thread_count());
}

std::shared_ptr<const Program> find_program(const ScaledProduct& p, const Env& env) {
  const int thread_count = threads_of(p, env);
  ProgramKey key;
  key.add(BP_OP_MATMUL_SCALED);
  for (const int64_t word :
       {int64_t{thread_count}, int64_t{p.a_dtype}, p.rows, p.depth, p.cols, p.b_row_bytes}) {
    key.add(word);
  }
  return env.programs().find(key, [&] { return make_program(p, plain_weight(p), thread_count); });
}

// The places in the workspace, behind that of the program.
struct Places {
  Places(const ScaledProduct& p, const Program& program)
      : size_bytes(program.workspace_size_bytes()) {
    if (!keeps_sums_in_y(p)) {
      sums = reserve_bytes(static_cast<uint64_t>(p.rows * p.cols) * sizeof(int32_t), size_bytes);
    }
    columns = reserve_bytes(scaled_columns_size_bytes(p), size_bytes);
  }
  static bool keeps_sums_in_y(const ScaledProduct& p) {
    return p.y_dtype == BP_F32 && is_contiguous(p.y);
  }
  uint64_t sums = 0, columns = 0, size_bytes;
};

bp_status submit(const ScaledProduct& its_product, const Launch& launch,
                 std::shared_ptr<const Program> program, std::byte* weight) {
  return launch.submit([p = its_product, program = std::move(program), weight,
                        workspace = launch.workspace(), thread_count = launch.thread_count()] {
    const Places places(p, *program);
    auto* const sums = reinterpret_cast<int32_t*>(
        Places::keeps_sums_in_y(p) ? p.y.address : workspace + places.sums);
    void* const externals[] = {p.a.address, weight, sums};
    program->run(externals, workspace);
    finish_scaled_sums(p, sums, workspace + places.columns, thread_count);
  });
}

}  // namespace

const char* scaled_library_refusal(const ScaledProduct& p, bool is_packed) {
  if (!library_has(dnnl::cpu_isa::avx512_core_vnni) && !library_has(dnnl::cpu_isa::avx2_vnni)) {
    return "oneDNN has no exact product of i8 on this processor";
  }
  const bool is_known = p.is_integer && (p.a_dtype == BP_I8 || p.a_dtype == BP_U8) &&
                        p.b_dtype == BP_I8 && p.is_one_block();
  if (!is_known) return "the factors are not i8 or u8 by i8 with a scale for each row";
  if (!is_contiguous(p.a)) return "a is not one dense matrix";
  if (p.depth > kMostDepthOfBytes) return "a row has more than 32,768 elements";
  if (p.cols > 1 && p.b_row_bytes < p.depth) return "the rows of b overlap";
  if (p.rows == 0 || p.cols == 0) return "y has no elements";
  if (p.rows < kFewestRows && !is_packed) return "the product has less than 8 rows";
  return nullptr;
}

uint64_t scaled_library_workspace_size_bytes(const ScaledProduct& p, const Env& env) {
  return Places(p, *find_program(p, env)).size_bytes;
}

bp_status submit_scaled_library(const ScaledProduct& p, const Launch& launch) {
  return submit(p, launch, find_program(p, launch), const_cast<std::byte*>(p.b));
}

ScaledPlan::ScaledPlan(const bp_matmul_scaled_args& args, const PlanRequest& request,
                       const Env& env) {
  if (!request.is_constant(1)) refuse_plan("b is not constant");
  if (const bp_reason reason = scaled_product_refusal(args)) refuse_plan(reason);
  const ScaledProduct p = scaled_shape_of(args);
  if (const char* reason = scaled_library_refusal(p, true)) refuse_plan(reason);
  program_ = make_program(p, any_weight(p), threads_of(p, env));
  packer_ = make_packer(plain_weight(p), program_->desc(kWeight), env.thread_count());
  workspace_size_bytes_ =
      std::max(Places(p, *program_).size_bytes, packer_->workspace_size_bytes());
}

uint64_t ScaledPlan::packed_size_bytes() const { return program_->desc(kWeight).get_size(); }

bp_status ScaledPlan::pack(const bp_matmul_scaled_args& args, const Launch& launch,
                           std::byte* packed) const {
  return launch.submit([packer = packer_, weight = data<std::byte>(*args.b), packed,
                        workspace = launch.workspace()] {
    void* const externals[] = {weight, packed};
    packer->run(externals, workspace);
  });
}

bp_status ScaledPlan::launch(const bp_matmul_scaled_args& args, const Launch& launch,
                             std::byte* packed) const {
  return submit(scaled_product_of(args), launch, program_, packed);
}

}  // namespace bp::kernels
