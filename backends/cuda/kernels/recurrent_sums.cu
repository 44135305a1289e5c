// The gradients of x, of the weights and of the biases of a recurrent sequence, when its steps have
// run: products and sums over all steps (recurrent_backward.cuh). The limit is that of the
// products. The copies of x and of its gradient are limited by memory, and take a few percent of
// the time of the products unless there are few units.
#include "backends/cuda/kernels/recurrent_backward.cuh"
#include "backends/cuda/kernels/reduce.cuh"
#include "backplane/shell/workspace.hpp"

namespace bp::cuda {
namespace {

// ---- x and its gradient -------------------------------------------------------------------------

// Some steps of x, or of its gradient, and their place in a dense buffer of sums.
struct InputsPlan {
  SequenceView x;
  StepCounts counts;
  std::byte* dense = nullptr;
  int64_t first = 0;  // The first step.
  uint32_t count = 0;
  Divider inputs, rows;
};

// Copies x to the buffer, or the buffer to x. What a row has no step for is 0 on both sides: x may
// be anything there, and a gradient of 0 times a weight may be NaN.
template <typename T, bool kStores>
__global__ void __launch_bounds__(kBlockThreads) inputs_kernel(InputsPlan plan) {
  using C = Compute<T>;
  const uint32_t number = blockIdx.x * kBlockThreads + threadIdx.x;
  if (number >= plan.count) return;
  const uint32_t line = plan.inputs.divide(number), element = number - line * plan.inputs.divisor();
  const uint32_t steps = plan.rows.divide(line), row = line - steps * plan.rows.divisor();
  const int64_t step = plan.first + steps;
  T* const x = plan.x.at<T>(step, row, element);
  C& dense = reinterpret_cast<C*>(plan.dense)[number];
  const bool has_step = plan.counts.has(step, row);
  if constexpr (kStores) {
    *x = narrow<T>(has_step ? dense : C{0});
  } else {
    dense = has_step ? static_cast<C>(widen(*x)) : C{0};
  }
}

template <bool kStores>
bp_status launch_inputs(const SequenceBackward& s, const bp_tensor& tensor, StepCounts counts,
                        std::byte* dense, Launch& launch) {
  const int64_t of_one = s.rows * s.inputs;
  if (of_one == 0) return BP_OK;
  InputsPlan plan;
  plan.x = view_of(&tensor);
  plan.counts = counts;
  plan.inputs = divider_of(s.inputs);
  plan.rows = divider_of(s.rows);
  const int64_t most = kMaxLaunchElements / of_one;
  for (int64_t first = 0; first < s.steps; first += most) {
    plan.first = first;
    plan.dense = dense + first * of_one * s.sum_bytes();
    plan.count = static_cast<uint32_t>(std::min(most, s.steps - first) * of_one);
    const bp_status status = with_float(s.dtype, [&]<typename T>(T) {
      return run<inputs_kernel<T, kStores>>(launch, blocks_for(plan.count, kBlockThreads),
                                            kBlockThreads, 0, plan);
    });
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

// ---- Biases -------------------------------------------------------------------------------------

template <typename A>
struct ColumnSum {
  using Acc = A;
  __device__ static Acc identity() { return 0; }
  __device__ static Acc take(Acc acc, Acc x, int64_t) { return acc + x; }
  __device__ static Acc combine(Acc a, Acc b) { return a + b; }
  __device__ static void write(Acc acc, const ReduceResult& result, int64_t at) {
    store_number(result.y, result.kind, at, acc);
  }
};

// Returns the sums over all steps and rows of gradients of gates, which are at `d`.
Reduction column_sums(const SequenceBackward& s, const std::byte* d, const bp_tensor& y) {
  const int64_t width = s.width(), count = s.steps * s.rows, one = 1;
  const Loop kept = make_loop(1, &width, {operand(&y), {d, &one, s.sum_bytes()}});
  return Reduction(kept, make_loop(1, &count, {{d, &width, s.sum_bytes()}}));
}

uint64_t column_parts_bytes(const SequenceBackward& s) {
  // The cut does not depend on where the gradients lie, but NULL would be a value in the call.
  alignas(16) static constexpr std::byte kSomewhere[16] = {};
  uint64_t size_bytes = 0;
  for (const bp_tensor* y : {s.grad_bias, s.grad_recurrent_bias}) {
    if (y == nullptr) continue;
    const auto sum_bytes = static_cast<size_t>(s.sum_bytes());
    size_bytes = std::max(size_bytes, column_sums(s, kSomewhere, *y).parts_size_bytes(sum_bytes));
  }
  return size_bytes;
}

bp_status launch_column_sums(const SequenceBackward& s, const std::byte* d, const bp_tensor* y,
                             Launch& launch) {
  if (y == nullptr) return BP_OK;
  const Reduction sums = column_sums(s, d, *y);
  ReduceResult result;
  result.kind = y->dtype;
  result.count = sums.count();
  return s.sum_dtype() == BP_F64 ? submit_reduce<ColumnSum<double>, double>(launch, sums, result)
                                 : submit_reduce<ColumnSum<float>, float>(launch, sums, result);
}

}  // namespace

// ---- Workspace ----------------------------------------------------------------------------------

BackwardWork::BackwardWork(const SequenceBackward& s, const Env& env) : sequence(s) {
  const auto choose = [&](const Product& p) { return RepeatedProduct(p, env); };
  step = choose(step_product(nullptr, nullptr));
  if (s.cell == Cell::kResetBefore) candidate = choose(candidate_product(nullptr, nullptr));
  if (s.grad_x != nullptr) x = choose(x_product(nullptr));
  if (s.grad_weight != nullptr) whole_weight = choose(weight_product(nullptr));
  if (s.grad_recurrent != nullptr) {
    whole_recurrent = choose(recurrent_product(nullptr));
    if (s.cell == Cell::kResetBefore) last = choose(last_product(nullptr));
  }
  place_buffers();
}

void BackwardWork::place_buffers() {
  const SequenceBackward& s = sequence;
  const int64_t all = s.steps * s.rows, sum = s.sum_bytes(), state = s.rows * s.hidden;
  const bool is_before = s.cell == Cell::kResetBefore, needs_h = s.grad_recurrent != nullptr;
  const bool needs_x = s.grad_x != nullptr || s.grad_weight != nullptr;
  Parts parts;
  parts.reserve(static_cast<int64_t>(column_parts_bytes(s)), 1);  // reduce.cuh wants the begin.
  counts = parts.reserve(s.lengths != nullptr ? s.rows : 0, sizeof(int64_t));
  of_x = parts.reserve(all * s.width(), sum);
  of_h = parts.reserve(s.cell == Cell::kResetAfter ? all * s.width() : 0, sum);
  before = parts.reserve(needs_h ? all * s.hidden : 0, sum);
  kept = parts.reserve(needs_h && is_before ? all * s.hidden : 0, sum);
  rest = parts.reserve(state, sum);
  dc = parts.reserve(s.cell == Cell::kLstmCell ? state : 0, sum);
  product = parts.reserve(state, sum);
  candidates = parts.reserve(is_before ? state : 0, sum);
  inputs = parts.reserve(needs_x ? all * s.inputs : 0, sum);
  const int64_t of_weight = s.is_narrow() ? s.width() * s.inputs : 0;
  const int64_t of_recurrent = s.is_narrow() ? s.width() * s.hidden : 0;
  weight = parts.reserve(s.grad_x != nullptr ? of_weight : 0, sum);
  recurrent = parts.reserve(of_recurrent, sum);
  sums = parts.reserve(std::max(s.grad_weight != nullptr ? of_weight : 0,
                                s.grad_recurrent != nullptr ? of_recurrent : 0),
                       sum);
  library = parts.reserve_for(step, candidate, x, whole_weight, whole_recurrent, last);
  size_bytes = parts.size_bytes();
}

uint64_t sequence_workspace_bytes(const SequenceBackward& s, const Env& env) {
  return BackwardWork(s, env).size_bytes;
}

// ---- Products -----------------------------------------------------------------------------------

ProductOperand BackwardWork::all_steps(std::byte* base, uint64_t offset, int64_t cols) const {
  return dense_matrix(at(base, offset), sequence.sum_dtype(), sequence.steps * sequence.rows, cols);
}

ProductOperand BackwardWork::weight_of(std::byte* base) const {
  if (!sequence.is_narrow()) return matrix_of(*sequence.weight);
  return dense_matrix(at(base, weight), sequence.sum_dtype(), sequence.width(), sequence.inputs);
}

ProductOperand BackwardWork::recurrent_of(std::byte* base) const {
  if (!sequence.is_narrow()) return matrix_of(*sequence.recurrent);
  return dense_matrix(at(base, recurrent), sequence.sum_dtype(), sequence.width(), sequence.hidden);
}

ProductOperand BackwardWork::summed_in(const bp_tensor& gradient, std::byte* base) const {
  if (!sequence.is_narrow()) return matrix_of(gradient);
  return dense_matrix(at(base, sums), sequence.sum_dtype(), gradient.shape[0], gradient.shape[1]);
}

Product BackwardWork::step_product(std::byte* base, std::byte* of_h_of_step) const {
  const SequenceBackward& s = sequence;
  const ProductOperand d = dense_matrix(of_h_of_step, s.sum_dtype(), s.rows, s.width());
  return plain_product(columns_of(d, 0, joint_width(s)),
                       rows_of(recurrent_of(base), 0, joint_width(s)),
                       dense_matrix(at(base, product), s.sum_dtype(), s.rows, s.hidden));
}

Product BackwardWork::candidate_product(std::byte* base, std::byte* of_x_of_step) const {
  const SequenceBackward& s = sequence;
  const ProductOperand d = dense_matrix(of_x_of_step, s.sum_dtype(), s.rows, s.width());
  return plain_product(columns_of(d, 2 * s.hidden, s.hidden),
                       rows_of(recurrent_of(base), 2 * s.hidden, s.hidden),
                       dense_matrix(at(base, candidates), s.sum_dtype(), s.rows, s.hidden));
}

Product BackwardWork::x_product(std::byte* base) const {
  return plain_product(all_steps(base, of_x, sequence.width()), weight_of(base),
                       all_steps(base, inputs, sequence.inputs));
}

Product BackwardWork::weight_product(std::byte* base) const {
  return plain_product(transposed(all_steps(base, of_x, sequence.width())),
                       all_steps(base, inputs, sequence.inputs),
                       summed_in(*sequence.grad_weight, base));
}

Product BackwardWork::recurrent_product(std::byte* base) const {
  const ProductOperand d = all_steps(base, of_h_or_x(), sequence.width());
  const int64_t joint = joint_width(sequence);
  return plain_product(transposed(columns_of(d, 0, joint)),
                       all_steps(base, before, sequence.hidden),
                       rows_of(summed_in(*sequence.grad_recurrent, base), 0, joint));
}

Product BackwardWork::last_product(std::byte* base) const {
  const int64_t hidden = sequence.hidden;
  const ProductOperand d = all_steps(base, of_x, sequence.width());
  return plain_product(transposed(columns_of(d, 2 * hidden, hidden)), all_steps(base, kept, hidden),
                       rows_of(summed_in(*sequence.grad_recurrent, base), 2 * hidden, hidden));
}

// ---- All of it ----------------------------------------------------------------------------------

namespace {

// Makes the gradients of the two weights, whose sums may have to be rounded.
bp_status launch_weights(const BackwardWork& w, StepCounts counts, Launch& launch) {
  const SequenceBackward& s = w.sequence;
  std::byte* const base = launch.workspace();
  const auto finish = [&](const bp_tensor& gradient) {
    if (!s.is_narrow()) return bp_status{BP_OK};
    return launch_conversion(w.summed_in(gradient, base), matrix_of(gradient), launch);
  };
  bp_status status = BP_OK;
  if (s.grad_weight != nullptr) {
    status = launch_inputs<false>(s, *s.x, counts, base + w.inputs, launch);
    if (status == BP_OK) {
      status = w.whole_weight.launch(w.weight_product(base), base + w.library, launch);
    }
    if (status == BP_OK) status = finish(*s.grad_weight);
  }
  if (status != BP_OK || s.grad_recurrent == nullptr) return status;
  status = w.whole_recurrent.launch(w.recurrent_product(base), base + w.library, launch);
  if (status == BP_OK && s.cell == Cell::kResetBefore) {
    status = w.last.launch(w.last_product(base), base + w.library, launch);
  }
  return status == BP_OK ? finish(*s.grad_recurrent) : status;
}

}  // namespace

bp_status launch_sums(const BackwardWork& w, StepCounts counts, Launch& launch) {
  const SequenceBackward& s = w.sequence;
  std::byte* const base = launch.workspace();
  bp_status status = launch_weights(w, counts, launch);
  if (status == BP_OK && s.grad_x != nullptr) {
    status = w.x.launch(w.x_product(base), base + w.library, launch);
    if (status == BP_OK) {
      status = launch_inputs<true>(s, *s.grad_x, counts, base + w.inputs, launch);
    }
  }
  if (status == BP_OK) status = launch_column_sums(s, base + w.of_x, s.grad_bias, launch);
  if (status != BP_OK) return status;
  return launch_column_sums(s, base + w.of_h_or_x(), s.grad_recurrent_bias, launch);
}

}  // namespace bp::cuda
