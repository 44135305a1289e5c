// Sequences of lstm, gru and rnn (recurrent.hpp). The workspace has
//
//   sums        x weight^T of some steps, (steps, rows, gates * hidden)
//   products    that of the state that a step takes, (rows, gates * hidden)
//   h, c        the state, (rows, hidden), of the dtype of x
//
// and, if a GRU resets the state before the product,
//
//   z, kept     z, and r * h, of a step, (rows, hidden)
//   candidates  the product of r * h
//   last        the last third of `recurrent`, in f32
//
// A kernel of a cell adds the biases. A step of 64 rows and 1024 units moves 3 MB of f32 in the
// kernel, and 16 MB in the product, all of which should lie in the L2 cache.
#include "backends/cuda/kernels/recurrent.cuh"
#include "backplane/shell/workspace.hpp"

namespace bp::cuda {
namespace {

// So many sums of steps at once stay in the L2 cache of a large device, and their product has
// enough tiles to fill it.
constexpr int64_t kSumsAtOnce = int64_t{1} << 22;

// One step. Buffers are dense, (rows, hidden), if nothing else is said.
struct StepPlan {
  SequenceView y, gates, bias, recurrent_bias;
  StepCounts counts;
  std::byte *h = nullptr, *c = nullptr;                  // Of T.
  const std::byte *sums = nullptr, *products = nullptr;  // Sums, with all gates of a row.
  std::byte *z = nullptr, *kept = nullptr;               // Sums.
  const std::byte* candidates = nullptr;                 // Sums.
  int64_t step = 0;
  uint32_t count = 0;  // Rows times units.
  Divider units;
  bool is_relu = false;
};

// A unit of a row in a step.
template <typename T>
struct StepUnit {
  using C = Compute<T>;

  const StepPlan& p;
  uint32_t row, unit, at;

  __device__ __forceinline__ StepUnit(const StepPlan& plan, uint32_t number)
      : p(plan), row(plan.units.divide(number)), unit(number - row * hidden()), at(number) {}

  __device__ __forceinline__ uint32_t hidden() const { return p.units.divisor(); }

  // Returns the sum of a gate so far, without and with the bias. `gates` is the number of gates of
  // a row of `sums`.
  __device__ __forceinline__ C from_x(uint32_t gate, uint32_t gates) const {
    const uint32_t place = gate * hidden() + unit;
    const C sum = reinterpret_cast<const C*>(p.sums)[row * gates * hidden() + place];
    return p.bias.data == nullptr ? sum : sum + widen(*p.bias.at<T>(0, 0, place));
  }
  __device__ __forceinline__ C from_h(uint32_t gate, uint32_t gates) const {
    const uint32_t place = gate * hidden() + unit;
    return reinterpret_cast<const C*>(p.products)[row * gates * hidden() + place] +
           recurrent_bias(gate);
  }
  __device__ __forceinline__ C recurrent_bias(uint32_t gate) const {
    if (p.recurrent_bias.data == nullptr) return 0;
    return widen(*p.recurrent_bias.at<T>(0, 0, gate * hidden() + unit));
  }

  // Returns an element of a state, or of a buffer of sums.
  __device__ __forceinline__ C state(const std::byte* of) const {
    return widen(reinterpret_cast<const T*>(of)[at]);
  }
  __device__ __forceinline__ C& sum(std::byte* of) const { return reinterpret_cast<C*>(of)[at]; }

  __device__ __forceinline__ void save(uint32_t gate, C value) const {
    if (p.gates.data == nullptr) return;
    *p.gates.at<C>(p.step, row, gate * hidden() + unit) = value;
  }
  __device__ __forceinline__ void leave(C y) const {
    const T rounded = narrow<T>(y);
    *p.y.at<T>(p.step, row, unit) = rounded;
    reinterpret_cast<T*>(p.h)[at] = rounded;
  }
};

// ---- Cells --------------------------------------------------------------------------------------
//
// run() applies the gates to a unit. kSaved is the number of gates that a call saves.

struct LstmStep {
  static constexpr uint32_t kSaved = 5;

  template <typename T>
  __device__ static void run(const StepUnit<T>& u) {
    using C = Compute<T>;
    const C in = Sigmoid()(u.from_x(0, 4) + u.from_h(0, 4));
    const C out = Sigmoid()(u.from_x(1, 4) + u.from_h(1, 4));
    const C forget = Sigmoid()(u.from_x(2, 4) + u.from_h(2, 4));
    const C candidate = tanh(u.from_x(3, 4) + u.from_h(3, 4));
    const C before = u.state(u.p.c), next = forget * before + in * candidate;
    u.save(0, in);
    u.save(1, out);
    u.save(2, forget);
    u.save(3, candidate);
    u.save(4, before);
    reinterpret_cast<T*>(u.p.c)[u.at] = narrow<T>(next);
    u.leave(out * tanh(next));
  }
};

template <typename C>
__device__ __forceinline__ C gru_mix(C z, C candidate, C h) {
  return (C{1} - z) * candidate + z * h;
}

struct ResetAfterStep {
  static constexpr uint32_t kSaved = 4;

  template <typename T>
  __device__ static void run(const StepUnit<T>& u) {
    using C = Compute<T>;
    const C z = Sigmoid()(u.from_x(0, 3) + u.from_h(0, 3));
    const C r = Sigmoid()(u.from_x(1, 3) + u.from_h(1, 3));
    const C inner = u.from_h(2, 3);
    const C candidate = tanh(u.from_x(2, 3) + r * inner);
    u.save(0, z);
    u.save(1, r);
    u.save(2, candidate);
    u.save(3, inner);
    u.leave(gru_mix(z, candidate, u.state(u.p.h)));
  }
};

// The first part of a step that resets the state before the product: z, and r * h.
struct ResetBeforeGates {
  static constexpr uint32_t kSaved = 3;

  template <typename T>
  __device__ static void run(const StepUnit<T>& u) {
    using C = Compute<T>;
    const C z = Sigmoid()(u.from_x(0, 3) + u.from_h(0, 2));
    const C r = Sigmoid()(u.from_x(1, 3) + u.from_h(1, 2));
    u.save(0, z);
    u.save(1, r);
    u.sum(u.p.z) = z;
    u.sum(u.p.kept) = r * u.state(u.p.h);
  }
};

// The second part.
struct ResetBeforeCandidate {
  static constexpr uint32_t kSaved = 3;

  template <typename T>
  __device__ static void run(const StepUnit<T>& u) {
    using C = Compute<T>;
    const C product = reinterpret_cast<const C*>(u.p.candidates)[u.at];
    const C candidate = tanh(u.from_x(2, 3) + product + u.recurrent_bias(2));
    u.save(2, candidate);
    u.leave(gru_mix(u.sum(u.p.z), candidate, u.state(u.p.h)));
  }
};

struct SimpleStep {
  static constexpr uint32_t kSaved = 0;

  template <typename T>
  __device__ static void run(const StepUnit<T>& u) {
    using C = Compute<T>;
    const C sum = u.from_x(0, 1) + u.from_h(0, 1);
    u.leave(!u.p.is_relu ? tanh(sum) : sum < 0 ? C{0} : sum);
  }
};

// A row without this step keeps its state.
template <typename T, class CellStep>
__global__ void __launch_bounds__(kBlockThreads) step_kernel(StepPlan plan) {
  using C = Compute<T>;
  const uint32_t number = blockIdx.x * kBlockThreads + threadIdx.x;
  if (number >= plan.count) return;
  const StepUnit<T> u(plan, number);
  if (plan.counts.has(plan.step, u.row)) {
    CellStep::run(u);
    return;
  }
  *plan.y.at<T>(plan.step, u.row, u.unit) = narrow<T>(C{0});
  for (uint32_t gate = 0; gate < CellStep::kSaved; ++gate) u.save(gate, C{0});
  if (plan.kept != nullptr) u.sum(plan.kept) = 0;
}

// ---- On the host --------------------------------------------------------------------------------

// A range of steps that lie behind each other.
struct Steps {
  int64_t first, count;
};

// Returns the product of x in a range of steps with all weights.
Product input_product(const SequenceForward& s, const Steps& steps, std::byte* sums) {
  ProductOperand x = dense_matrix(data<std::byte>(*s.x), s.dtype, s.rows, s.inputs);
  x.address += steps.first * s.x->strides[0] * dtype_size_bytes(s.dtype);
  x.row_stride = s.x->strides[1];
  x.col_stride = s.x->strides[2];
  Product p = plain_product(x, transposed(matrix_of(*s.weight)),
                            dense_matrix(sums, s.sum_dtype(), s.rows, s.width()));
  p.batch_ndim = 1;
  p.batch[0] = steps.count;
  p.a.batch_strides[0] = s.x->strides[0];
  p.y.batch_strides[0] = p.preactivation.batch_strides[0] = s.rows * s.width();
  return folded(p);
}

// Returns the product of the state with the gates that take it as it is.
Product state_product(const SequenceForward& s, std::byte* h, std::byte* to) {
  const ProductOperand recurrent = rows_of(matrix_of(*s.recurrent), 0, joint_width(s));
  return plain_product(dense_matrix(h, s.dtype, s.rows, s.hidden), transposed(recurrent),
                       dense_matrix(to, s.sum_dtype(), s.rows, joint_width(s)));
}

// Returns the last third of `recurrent`, which is at `wide` if factors have to be converted.
ProductOperand last_of(const SequenceForward& s, std::byte* wide) {
  if (s.is_narrow()) return dense_matrix(wide, s.sum_dtype(), s.hidden, s.hidden);
  return rows_of(matrix_of(*s.recurrent), 2 * s.hidden, s.hidden);
}

// Returns the product of r * h with the last third of `recurrent`.
Product candidate_product(const SequenceForward& s, std::byte* kept, std::byte* wide,
                          std::byte* to) {
  return plain_product(dense_matrix(kept, s.sum_dtype(), s.rows, s.hidden),
                       transposed(last_of(s, wide)),
                       dense_matrix(to, s.sum_dtype(), s.rows, s.hidden));
}

// The products of a sequence, and where its buffers lie in the workspace.
struct ForwardWork {
  ForwardWork(const SequenceForward& s, const Env& env);

  int64_t steps_at_once;
  RepeatedProduct inputs, rest_of_inputs, state, candidate;
  uint64_t counts, sums, products, h, c = 0, z = 0, kept = 0, candidates = 0, last = 0, library;
  uint64_t size_bytes;
};

ForwardWork::ForwardWork(const SequenceForward& s, const Env& env) {
  const int64_t of_one = std::max<int64_t>(1, s.rows * s.width());
  steps_at_once = std::clamp<int64_t>(kSumsAtOnce / of_one, 1, std::max<int64_t>(1, s.steps));
  const bool is_before = s.cell == Cell::kResetBefore;
  const auto choose = [&](const Product& p) { return RepeatedProduct(p, env); };
  inputs = choose(input_product(s, {0, steps_at_once}, nullptr));
  const int64_t rest = s.steps % steps_at_once;
  if (rest != 0) rest_of_inputs = choose(input_product(s, {0, rest}, nullptr));
  state = choose(state_product(s, nullptr, nullptr));
  if (is_before) candidate = choose(candidate_product(s, nullptr, nullptr, nullptr));
  Parts parts;
  const int64_t item = dtype_size_bytes(s.dtype), sum = s.sum_bytes(), all = s.rows * s.hidden;
  counts = parts.reserve(s.lengths != nullptr ? s.rows : 0, sizeof(int64_t));
  sums = parts.reserve(steps_at_once * s.rows * s.width(), sum);
  products = parts.reserve(s.rows * joint_width(s), sum);
  h = parts.reserve(all, item);
  c = parts.reserve(s.cell == Cell::kLstmCell ? all : 0, item);
  z = parts.reserve(is_before ? all : 0, sum);
  kept = parts.reserve(is_before ? all : 0, sum);
  candidates = parts.reserve(is_before ? all : 0, sum);
  last = parts.reserve(is_before && s.is_narrow() ? s.hidden * s.hidden : 0, sum);
  library = parts.reserve_for(inputs, rest_of_inputs, state, candidate);
  size_bytes = parts.size_bytes();
}

class ForwardRun {
 public:
  ForwardRun(const SequenceForward& s, Launch& launch) : s_(s), work_(s, launch), launch_(launch) {
    check_workspace(launch.workspace_ref(), work_.size_bytes, "launch");
    const bool is_before = s.cell == Cell::kResetBefore;
    plan_.y = view_of(s.y);
    plan_.gates = view_of(s.gates);
    plan_.bias = view_of(s.bias);
    plan_.recurrent_bias = view_of(s.recurrent_bias);
    if (s.lengths != nullptr) plan_.counts.counts = reinterpret_cast<int64_t*>(at(work_.counts));
    plan_.h = at(work_.h);
    plan_.c = at(work_.c);
    plan_.products = at(work_.products);
    if (is_before) {
      plan_.z = at(work_.z);
      plan_.kept = at(work_.kept);
      plan_.candidates = at(work_.candidates);
    }
    plan_.count = static_cast<uint32_t>(s.rows * s.hidden);
    plan_.units = divider_of(s.hidden);
    plan_.is_relu = s.cell == Cell::kReluCell;
  }

  bp_status run() {
    bp_status status = load();
    for (int64_t number = 0; number < s_.steps && status == BP_OK;) {
      // Ranges begin at multiples of steps_at_once, in both orders of the steps.
      const int64_t most = work_.steps_at_once;
      const int64_t first = s_.step_at(number) / most * most;
      const Steps range = {first, std::min(most, s_.steps - first)};
      status = multiply_inputs(range);
      for (int64_t i = 0; i < range.count && status == BP_OK; ++i) {
        status = run_step(s_.step_at(number + i), range);
      }
      number += range.count;
    }
    if (status == BP_OK && s_.h_next != nullptr) status = store(work_.h, *s_.h_next);
    if (status == BP_OK && s_.c_next != nullptr) status = store(work_.c, *s_.c_next);
    return status;
  }

 private:
  std::byte* at(uint64_t offset) const { return launch_.workspace() + offset; }
  ProductOperand state_at(uint64_t offset) const {
    return dense_matrix(at(offset), s_.dtype, s_.rows, s_.hidden);
  }

  bp_status load() {
    bp_status status = launch_lengths(s_, reinterpret_cast<int64_t*>(at(work_.counts)), launch_);
    if (status == BP_OK) status = launch_conversion(matrix_of(*s_.h), state_at(work_.h), launch_);
    if (status == BP_OK && s_.c != nullptr) {
      status = launch_conversion(matrix_of(*s_.c), state_at(work_.c), launch_);
    }
    if (status != BP_OK || s_.cell != Cell::kResetBefore || !s_.is_narrow()) return status;
    return launch_conversion(rows_of(matrix_of(*s_.recurrent), 2 * s_.hidden, s_.hidden),
                             last_of(s_, at(work_.last)), launch_);
  }
  bp_status store(uint64_t offset, const bp_tensor& to) {
    return launch_conversion(state_at(offset), matrix_of(to), launch_);
  }

  bp_status multiply_inputs(const Steps& range) {
    const bool is_rest = range.count != work_.steps_at_once;
    return (is_rest ? work_.rest_of_inputs : work_.inputs)
        .launch(input_product(s_, range, at(work_.sums)), at(work_.library), launch_);
  }

  bp_status run_step(int64_t step, const Steps& range) {
    plan_.step = step;
    plan_.sums = at(work_.sums) + (step - range.first) * s_.rows * s_.width() * s_.sum_bytes();
    const bp_status status = work_.state.launch(state_product(s_, at(work_.h), at(work_.products)),
                                                at(work_.library), launch_);
    if (status != BP_OK) return status;
    return with_float(s_.dtype, [&]<typename T>(T) { return run_cell<T>(); });
  }

  template <typename T>
  bp_status run_cell() {
    switch (s_.cell) {
      case Cell::kLstmCell:
        return run_part<T, LstmStep>();
      case Cell::kResetAfter:
        return run_part<T, ResetAfterStep>();
      case Cell::kResetBefore: {
        bp_status status = run_part<T, ResetBeforeGates>();
        if (status == BP_OK) {
          status = work_.candidate.launch(
              candidate_product(s_, plan_.kept, at(work_.last), at(work_.candidates)),
              at(work_.library), launch_);
        }
        return status == BP_OK ? run_part<T, ResetBeforeCandidate>() : status;
      }
      default:
        return run_part<T, SimpleStep>();
    }
  }

  template <typename T, class CellStep>
  bp_status run_part() {
    return cuda::run<step_kernel<T, CellStep>>(launch_, blocks_for(plan_.count, kBlockThreads),
                                               kBlockThreads, 0, plan_);
  }

  const SequenceForward& s_;
  const ForwardWork work_;
  Launch& launch_;
  StepPlan plan_;
};

}  // namespace

uint64_t sequence_workspace_bytes(const SequenceForward& s, const Env& env) {
  return ForwardWork(s, env).size_bytes;
}

bp_status launch_sequence(const SequenceForward& s, Launch& launch) {
  return ForwardRun(s, launch).run();
}

}  // namespace bp::cuda
