// oneDNN computes f32, except where is_slow_in_library() or is_long_write() says so. It also
// computes f16 if it has a product for the processor that sums in f32; with AVX512-FP16 that one is
// a tenth faster than run_gemm() at 1024^3. It computes bf16 on processors with AVX512_BF16, if the
// kernel declares that subnormals are flushed; vdpbf16ps has twice the rate of f32. run_gemm(),
// which takes every stride, computes all other products. It also computes products by a vector,
// because oneDNN reads memory at little more than half the possible speed there. Many small
// products have loops of their own (small_products.cpp). oneDNN takes matrices with dense rows or
// columns, and one batch axis. Other operands are copied to the workspace first, and y from there
// at the end. Other batches are a loop over the same primitive.
//
// relu runs after the product, because the post-op of oneDNN 3.2 turns NaN into 0.
#include "backends/host_kernels/product.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "backends/host_kernels/dnnl_program.hpp"
#include "backends/host_kernels/gemm.hpp"
#include "backends/host_kernels/gemv.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/product_batch.hpp"
#include "backplane/ops.h"

namespace bp::kernels {
namespace {

// Returns whether the operand has dense rows or columns that do not overlap. Sets the strides of
// single rows and columns to those of a dense matrix.
bool normalize_strides(ProductOperand& o) {
  if (o.cols == 1) o.col_stride = 1;
  if (o.rows == 1) o.row_stride = o.col_stride == 1 ? o.cols : 1;
  if (o.cols == 1 && o.row_stride < 1) return false;
  return (o.col_stride == 1 && o.row_stride >= o.cols) ||
         (o.row_stride == 1 && o.col_stride >= o.rows);
}

// Returns the elements of `o`. A batch axis that repeats them has extent 1.
View view_of_operand(const Product& p, const ProductOperand& o) {
  View view;
  view.address = o.address;
  view.ndim = p.batch_ndim + 2;
  for (uint32_t i = 0; i < p.batch_ndim; ++i) {
    view.shape[i] = o.batch_strides[i] == 0 ? 1 : p.batch[i];
    view.strides[i] = o.batch_strides[i];
  }
  view.shape[p.batch_ndim] = o.rows;
  view.shape[p.batch_ndim + 1] = o.cols;
  view.strides[p.batch_ndim] = o.row_stride;
  view.strides[p.batch_ndim + 1] = o.col_stride;
  return view;
}

void set_strides(ProductOperand& o, uint32_t batch_ndim, const View& view) {
  for (uint32_t i = 0; i < batch_ndim; ++i) {
    if (o.batch_strides[i] != 0) o.batch_strides[i] = view.strides[i];
  }
  o.row_stride = view.strides[batch_ndim];
  o.col_stride = view.strides[batch_ndim + 1];
}

DenseCopy copy_if_needed(const Product& p, ProductOperand& o, bool is_needed) {
  if (!is_needed) return {};
  const DenseCopy copy(view_of_operand(p, o), BP_F32, BP_F32);
  set_strides(o, p.batch_ndim, copy.dense);
  return copy;
}

// A product in the form that oneDNN takes.
struct Plan {
  Product product;
  DenseCopy a, b, y, bias;
};

Plan make_plan(Product p) {
  Plan plan;
  p = folded(p);
  // oneDNN writes only dense rows. If y has dense columns, the transposed product has dense rows.
  const bool is_taken = normalize_strides(p.y);
  if (is_taken && p.y.col_stride != 1 && !p.has_bias) {
    std::swap(p.a, p.b);
    for (ProductOperand* o : {&p.a, &p.b, &p.y, &p.preactivation}) {
      std::swap(o->rows, o->cols);
      std::swap(o->row_stride, o->col_stride);
    }
  }
  plan.a = copy_if_needed(p, p.a, !normalize_strides(p.a));
  plan.b = copy_if_needed(p, p.b, !normalize_strides(p.b));
  plan.y = copy_if_needed(p, p.y, !is_taken || p.y.col_stride != 1);
  if (p.has_bias && p.bias_stride != 1) {
    plan.bias = DenseCopy({p.bias, 1, {p.y.cols}, {p.bias_stride}}, BP_F32, BP_F32);
  }
  plan.product = p;
  return plan;
}

dnnl::memory::data_type library_dtype(bp_dtype dtype) {
  switch (dtype) {
    case BP_F16:
      return dnnl::memory::data_type::f16;
    case BP_BF16:
      return dnnl::memory::data_type::bf16;
    case BP_I8:
      return dnnl::memory::data_type::s8;
    case BP_I32:
      return dnnl::memory::data_type::s32;
    default:
      return dnnl::memory::data_type::f32;
  }
}

dnnl::memory::desc desc_of(const Product& p, const ProductOperand& o, bool is_batched) {
  dnnl::memory::dims shape = {o.rows, o.cols}, strides = {o.row_stride, o.col_stride};
  if (is_batched) {
    const int64_t stride = o.batch_strides[p.batch_ndim - 1];
    shape.insert(shape.begin(), stride == 0 ? 1 : p.batch[p.batch_ndim - 1]);
    strides.insert(strides.begin(),
                   stride == 0 ? std::max(o.rows * o.row_stride, o.cols * o.col_stride) : stride);
  }
  return {shape, library_dtype(o.dtype), strides};
}

// Makes the program. Returns NULL if oneDNN has no fast implementation.
std::shared_ptr<Program> make_program(const Product& p, bool is_batched, int thread_count) {
  auto program = std::make_shared<Program>(thread_count);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::memory::desc a = desc_of(p, p.a, is_batched), b = desc_of(p, p.b, is_batched),
                           y = desc_of(p, p.y, is_batched);
  dnnl::memory::desc bias;
  if (p.has_bias) {
    dnnl::memory::dims shape(is_batched ? 3 : 2, 1), strides(shape.size(), p.y.cols);
    shape.back() = p.y.cols;
    strides.back() = 1;
    bias = {shape, library_dtype(p.y.dtype), strides};
  }
  const ThreadCountScope scope(thread_count);
  const dnnl::matmul::primitive_desc pd =
      p.has_bias ? dnnl::matmul::primitive_desc(program->engine(), a, b, bias, y, attr)
                 : dnnl::matmul::primitive_desc(program->engine(), a, b, y, attr);
  if (std::string_view(pd.impl_info_str()).starts_with("ref")) return nullptr;
  const Program::Memory a_memory = program->add_external(a), b_memory = program->add_external(b),
                        y_memory = program->add_external(y),
                        scratch = program->add_workspace(pd.scratchpad_desc());
  std::vector<Program::Argument> arguments = {{DNNL_ARG_SRC, a_memory},
                                              {DNNL_ARG_WEIGHTS, b_memory},
                                              {DNNL_ARG_DST, y_memory},
                                              {DNNL_ARG_SCRATCHPAD, scratch}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, program->add_external(bias)});
  program->add_step(dnnl::matmul(pd), std::move(arguments));
  return program;
}

// Returns whether the last batch axis can be a batch axis of oneDNN. y must have a place for each
// of its indices, and a and b must not both be repeated.
bool may_batch(const Product& p) {
  if (p.batch_ndim == 0) return false;
  const uint32_t i = p.batch_ndim - 1;
  const int64_t a = p.a.batch_strides[i], b = p.b.batch_strides[i];
  return a >= 0 && b >= 0 && a + b > 0 && p.y.batch_strides[i] > 0;
}

// Makes the program. It has no step if oneDNN has no fast product of f16, bf16 or i8; loops of this
// project compute the product then.
std::shared_ptr<const Program> make_best_program(const Product& p, int thread_count) {
  for (const bool is_batched : {true, false}) {
    if (is_batched && !may_batch(p)) continue;
    try {
      std::shared_ptr<Program> program = make_program(p, is_batched, thread_count);
      if (program != nullptr) return program;
    } catch (const dnnl::error& e) {
      // oneDNN has its own rules for the strides of a batch.
      if (e.status != dnnl_invalid_arguments && e.status != dnnl_unimplemented) throw;
    }
  }
  if (p.a.dtype == BP_F32) throw StatusError(BP_INTERNAL, "oneDNN has no fast product");
  return std::make_shared<Program>(thread_count);
}

std::shared_ptr<const Program> find_program(const Product& p, const Env& env) {
  const bool is_batched = may_batch(p);
  const int64_t batches = is_batched ? p.batch[p.batch_ndim - 1] : 1;
  const int thread_count =
      threads_for(batches * p.y.rows * p.y.cols * p.a.cols, env.thread_count());
  ProgramKey key;
  key.add(BP_OP_MATMUL);
  key.add(thread_count);
  key.add(is_batched ? batches : -1);
  key.add(p.has_bias ? 1 : 0);
  key.add(p.a.dtype);
  key.add(p.y.dtype);
  key.add(p.a.rows);
  key.add(p.a.cols);
  key.add(p.b.cols);
  for (const ProductOperand* o : {&p.a, &p.b, &p.y}) {
    key.add(o->row_stride);
    key.add(o->col_stride);
    if (is_batched) key.add(o->batch_strides[p.batch_ndim - 1]);
  }
  return env.programs().find(key, [&] { return make_best_program(p, thread_count); });
}

// Gives the copies their places behind the program's own workspace, and returns the whole size.
uint64_t place_copies(Plan& plan, uint64_t size_bytes) {
  for (DenseCopy* copy : {&plan.a, &plan.b, &plan.y, &plan.bias}) {
    copy->offset = reserve_bytes(copy->size_bytes(), size_bytes);
  }
  return size_bytes;
}

Matrix matrix(const ProductOperand& o, int64_t offset) {
  std::byte* const data =
      o.address == nullptr ? nullptr : o.address + offset * dtype_size_bytes(o.dtype);
  return {data, o.dtype, o.rows, o.cols, o.row_stride, o.col_stride};
}

void run_library(Plan& plan, const Program& program, std::byte* workspace, int thread_count) {
  Product& p = plan.product;
  std::pair<DenseCopy*, std::byte**> places[] = {{&plan.a, &p.a.address},
                                                 {&plan.b, &p.b.address},
                                                 {&plan.y, &p.y.address},
                                                 {&plan.bias, &p.bias}};
  for (auto& [copy, address] : places) {
    if (!copy->is_needed) continue;
    *address = copy->dense.address = workspace + copy->offset;
    if (copy != &plan.y) copy->fetch(thread_count);
  }
  const uint32_t axes = p.batch_ndim - (program.desc(0).get_ndims() == 3 ? 1 : 0);
  int64_t count = 1;
  for (uint32_t i = 0; i < axes; ++i) count *= p.batch[i];
  for_each_batch(p, axes, 0, count, [&](const BatchOffsets& at) {
    void* const externals[] = {matrix(p.a, at.a).data, matrix(p.b, at.b).data,
                               matrix(p.y, at.y).data, p.bias};
    program.run(externals, workspace);
  });
  run_activation(p, thread_count);
  if (plan.y.is_needed) plan.y.store(thread_count);
}

Gemm gemm_of(const Product& p, const BatchOffsets& at) {
  Gemm gemm;
  gemm.a = matrix(p.a, at.a);
  gemm.b = matrix(p.b, at.b);
  gemm.y = matrix(p.y, at.y);
  if (p.has_bias) gemm.bias = {p.bias, p.y.dtype, p.y.rows, p.y.cols, 0, p.bias_stride};
  gemm.preactivation = matrix(p.preactivation, at.preactivation);
  gemm.activation = p.activation;
  return gemm;
}

// Divides many products among the threads. If there are only a few products, all threads work on
// each of them.
void run_loops(const Product& p, std::byte* workspace, int thread_count) {
  const int64_t batches = p.batch_count();
  const int sharers = batches >= int64_t{4} * thread_count ? 1 : thread_count;
  const int64_t teams = thread_count / sharers;
  const uint64_t size_bytes = gemm_workspace_size_bytes(gemm_of(p, {}), sharers);
  parallel_for(thread_count, teams, 1, [&](int64_t begin, int64_t end) {
    for (int64_t team = begin; team < end; ++team) {
      for_each_batch(p, p.batch_ndim, batches * team / teams, batches * (team + 1) / teams,
                     [&](const BatchOffsets& at) {
                       run_gemm(gemm_of(p, at),
                                workspace + static_cast<uint64_t>(team) * size_bytes, sharers);
                     });
    }
  });
}

bool is_of_f32(const Product& p) {
  return p.a.dtype == BP_F32 && p.b.dtype == BP_F32 && p.y.dtype == BP_F32 && p.a.cols != 0;
}

bool takes_own_strides(const Product& p) {
  const Plan plan = make_plan(p);
  return !plan.a.is_needed && !plan.b.is_needed && !plan.y.is_needed && !plan.bias.is_needed;
}

// Returns whether oneDNN may have an exact product of i8 that takes the operands with their own
// strides.
bool is_of_bytes(const Product& p) {
  if (p.a.dtype != BP_I8 || p.b.dtype != BP_I8 || p.y.dtype != BP_I32) return false;
  if (p.a.cols == 0 || p.a.cols > kMostDepthOfBytes || p.has_bias || p.has_preactivation)
    return false;
  return library_has(dnnl::cpu_isa::avx512_core_vnni) && takes_own_strides(p);
}

// Returns whether oneDNN may have a product of f16 or bf16 that takes the operands with their own
// strides and rounds once. With a depth of 1 the time goes into writing y, and run_gemm() takes
// less of it.
bool is_of_fast_narrow(const Product& p, Subnormals subnormals) {
  const bp_dtype narrow = p.a.dtype;
  if (p.b.dtype != narrow || (p.y.dtype != narrow && p.y.dtype != BP_F32)) return false;
  if (p.a.cols <= 1 || p.activation != BP_LINEAR_ACTIVATION_NONE || p.has_preactivation) {
    return false;
  }
  const bool is_fast =
      (narrow == BP_F16 && library_has(dnnl::cpu_isa::avx512_core_fp16)) ||
      (narrow == BP_BF16 && subnormals == Subnormals::flushed && dot_bf16_refusal() == nullptr);
  return is_fast && takes_own_strides(p);
}

// Returns whether this is a long product by a vector that is_gemv() does not take. oneDNN sums it
// term by term; the sums of run_gemm() keep their digits.
bool is_long_vector(const Gemm& gemm) {
  constexpr int64_t kLongDepth = 1 << 14;
  return (gemm.y.rows == 1 || gemm.y.cols == 1) && gemm.a.cols > kLongDepth;
}

// Returns whether oneDNN reads lines that compete for the same sets of the caches. Without AVX-512,
// oneDNN 3.2 does not copy the operands of a product if 1 / rows + 1 / cols is at least 0.0038
// (nocopy_checker_avx2() in its gemm_driver.cpp). It then walks along the depth of a transposed a,
// and of a plain b, line by line. If these lines are a multiple of 2 KiB apart, two cores of Zen 5
// with AVX2 reach 126 to 230 GF/s, and run_gemm(), which copies into panels, 204 to 240: as the
// gradient of a weight of 1024x256 146 against 234. With fewer rows or columns than kFewest the
// copies take too long.
bool is_slow_in_library(const Gemm& g) {
  constexpr int64_t kFewest = 128, kPitchElements = 2048 / sizeof(float);
  const auto has_slow_pitch = [](int64_t depth_stride) {
    return depth_stride > 1 && depth_stride % kPitchElements == 0;
  };
  if (!has_slow_pitch(g.a.col_stride) && !has_slow_pitch(g.b.row_stride)) return false;
  const int64_t rows = g.y.rows, cols = g.y.cols;
  if (std::min(rows, cols) < kFewest) return false;
  const double copying = 1.0 / static_cast<double>(rows) + 1.0 / static_cast<double>(cols);
  return copying >= 0.0038 && !library_has(dnnl::cpu_isa::avx512_core);
}

// Returns whether y takes most of the time. Unlike oneDNN, run_gemm() writes it past the caches.
bool is_long_write(const Gemm& g) {
  return is_shallow(g.a.cols) && std::min(g.y.rows, g.y.cols) >= kTileColsLimit &&
         g.a.dtype == BP_F32 && g.y.rows * g.y.cols * dtype_size_bytes(BP_F32) >= kStreamBytes;
}

// Returns whether small_products.cpp computes the product. Without AVX-512, oneDNN 3.2 takes half a
// microsecond for each product of a batch before it multiplies.
bool is_of_small(const Product& p) {
  return !library_has(dnnl::cpu_isa::avx512_core) && are_small_products(folded(p));
}

bool is_for_library(const Product& p, Subnormals subnormals) {
  if (is_of_bytes(p)) return true;
  if (!is_of_f32(p) && !is_of_fast_narrow(p, subnormals)) return false;
  const Gemm g = gemm_of(folded(p), {});
  return !is_gemv(g) && !is_long_vector(g) && !is_slow_in_library(g) && !is_long_write(g);
}

}  // namespace

void run_activation(const Product& p, int thread_count) {
  if (p.activation == BP_LINEAR_ACTIVATION_NONE && !p.has_preactivation) return;
  for_each_batch(p, p.batch_ndim, 0, p.batch_count(), [&](const BatchOffsets& at) {
    run_activation(matrix(p.y, at.y), matrix(p.preactivation, at.preactivation), p.activation,
                   thread_count);
  });
}

bool is_one_dense_product(Product& p) {
  if (!is_of_f32(p) || p.is_empty()) return false;
  p = folded(p);
  return p.batch_ndim == 0 && normalize_strides(p.a) && normalize_strides(p.b) &&
         normalize_strides(p.y) && p.a.col_stride == 1 && p.y.col_stride == 1 &&
         (!p.has_bias || p.bias_stride == 1);
}

bool library_has_bytes(const Product& product, const Env& env) {
  if (product.is_empty() || !is_of_bytes(product)) return false;
  return find_program(make_plan(product).product, env)->has_steps();
}

bp_reason dot_bf16_refusal() {
  return library_has(dnnl::cpu_isa::avx512_core_bf16)
             ? nullptr
             : "oneDNN has no AVX512_BF16 on this processor";
}

uint64_t product_workspace_size_bytes(const Product& product, const Env& env,
                                      Subnormals subnormals) {
  if (product.is_empty() || is_of_small(product)) return 0;
  if (is_for_library(product, subnormals)) {
    Plan plan = make_plan(product);
    const std::shared_ptr<const Program> program = find_program(plan.product, env);
    if (program->has_steps()) return place_copies(plan, program->workspace_size_bytes());
  }
  // One team per thread needs at least as much as one team of all threads.
  return static_cast<uint64_t>(env.thread_count()) *
         gemm_workspace_size_bytes(gemm_of(folded(product), {}), 1);
}

bp_status submit_product(const Product& product, const Launch& launch, Subnormals subnormals) {
  const int thread_count = launch.thread_count();
  std::byte* const workspace = launch.workspace();
  if (product.is_empty()) return launch.submit([] {});
  if (is_of_small(product)) {
    return launch.submit([p = folded(product), thread_count] {
      run_small_products(p, thread_count);
      run_activation(p, thread_count);
    });
  }
  if (is_for_library(product, subnormals)) {
    Plan plan = make_plan(product);
    std::shared_ptr<const Program> program = find_program(plan.product, launch);
    if (program->has_steps()) {
      place_copies(plan, program->workspace_size_bytes());
      return launch.submit([plan, program, workspace, thread_count]() mutable {
        run_library(plan, *program, workspace, thread_count);
      });
    }
  }
  return launch.submit(
      [p = folded(product), workspace, thread_count] { run_loops(p, workspace, thread_count); });
}

}  // namespace bp::kernels
