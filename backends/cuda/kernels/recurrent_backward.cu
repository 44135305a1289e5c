// The steps of the gradients of lstm, gru and rnn (recurrent.hpp). A kernel of a step makes the
// gradients of the sums in its gates, from what the step that runs later has left: `rest`, and a
// product of the gradients of its gates. recurrent_sums.cu does what is left behind the steps.
//
// A step of 64 rows and 1024 units of lstm moves 3.5 MB of f32 in the kernel, of which the saved
// gates come from memory, and 16 MB in the product.
#include "backends/cuda/kernels/recurrent_backward.cuh"
#include "backplane/shell/workspace.hpp"

namespace bp::cuda {
namespace {

// One step. Buffers are dense, of the dtype of the sums, and (rows, hidden) if nothing else is
// said. A step of -1 means that there is none.
struct GradientPlan {
  SequenceView grad_y, grad_h, h, y, gates;
  StepCounts counts;
  std::byte *rest = nullptr, *dc = nullptr;
  std::byte *of_x = nullptr, *of_h = nullptr;    // (rows, gates * hidden)
  std::byte *before = nullptr, *kept = nullptr;  // NULL: nothing reads them.
  const std::byte *product = nullptr, *candidates = nullptr;
  int64_t step = -1;
  int64_t later = -1, earlier = -1;  // The steps that the sequence ran after and before this one.
  uint32_t count = 0;                // Rows times units.
  Divider units;
  bool is_relu = false;
};

// A unit of a row in a step.
template <typename T>
struct GradientUnit {
  using C = Compute<T>;

  const GradientPlan& p;
  uint32_t row, unit, at;

  __device__ __forceinline__ GradientUnit(const GradientPlan& plan, uint32_t number)
      : p(plan), row(plan.units.divide(number)), unit(number - row * hidden()), at(number) {}

  __device__ __forceinline__ uint32_t hidden() const { return p.units.divisor(); }
  __device__ __forceinline__ C& sum(std::byte* of) const { return reinterpret_cast<C*>(of)[at]; }
  __device__ __forceinline__ C sum(const std::byte* of) const {
    return reinterpret_cast<const C*>(of)[at];
  }

  // Returns what the step that runs later has left of the gradient of h.
  __device__ __forceinline__ C carried() const {
    const C rest = sum(p.rest);
    return p.later >= 0 && p.counts.has(p.later, row) ? rest + sum(p.product) : rest;
  }
  // Returns the h that the step takes. A row may begin later than others.
  __device__ __forceinline__ C h_before() const {
    const bool is_first = p.earlier < 0 || !p.counts.has(p.earlier, row);
    return widen(is_first ? *p.h.at<T>(0, row, unit) : *p.y.at<T>(p.earlier, row, unit));
  }
  __device__ __forceinline__ C gate(uint32_t number) const {
    return *p.gates.at<C>(p.step, row, int64_t{number} * hidden() + unit);
  }
  // Sets the gradient of one of `gates` gates.
  __device__ __forceinline__ void set(std::byte* of, uint32_t gate, uint32_t gates, C value) const {
    reinterpret_cast<C*>(of)[(row * gates + gate) * hidden() + unit] = value;
  }
};

// Return the slope of tanh, and of sigmoid, where its value is y.
template <typename C>
__device__ __forceinline__ C slope_of_tanh(C y) {
  return C{1} - y * y;
}
template <typename C>
__device__ __forceinline__ C slope_of_sigmoid(C y) {
  return y * (C{1} - y);
}

// ---- Cells --------------------------------------------------------------------------------------
//
// run() takes the gradient of the h that the step leaves, and returns what it gives the h before
// without a product. kGates is the number of gates of the weights.

struct LstmGradient {
  static constexpr uint32_t kGates = 4;

  template <typename T, typename C>
  __device__ static C run(const GradientUnit<T>& u, C dh) {
    const C in = u.gate(0), out = u.gate(1), forget = u.gate(2), candidate = u.gate(3);
    const C before = u.gate(4), level = tanh(forget * before + in * candidate);
    const C of_c = dh * out * slope_of_tanh(level) + u.sum(u.p.dc);
    u.set(u.p.of_x, 0, kGates, of_c * candidate * slope_of_sigmoid(in));
    u.set(u.p.of_x, 1, kGates, dh * level * slope_of_sigmoid(out));
    u.set(u.p.of_x, 2, kGates, of_c * before * slope_of_sigmoid(forget));
    u.set(u.p.of_x, 3, kGates, of_c * in * slope_of_tanh(candidate));
    u.sum(u.p.dc) = of_c * forget;
    return 0;
  }
};

// A GRU that resets the state after the product, or the part of one that resets it before in which
// no product is needed.
template <bool kIsAfter>
struct GruGradient {
  static constexpr uint32_t kGates = 3;

  template <typename T, typename C>
  __device__ static C run(const GradientUnit<T>& u, C dh) {
    const C z = u.gate(0), r = u.gate(1), candidate = u.gate(2), before = u.h_before();
    const C of_z = dh * (before - candidate) * slope_of_sigmoid(z);
    const C of_candidate = dh * (C{1} - z) * slope_of_tanh(candidate);
    u.set(u.p.of_x, 0, kGates, of_z);
    u.set(u.p.of_x, 2, kGates, of_candidate);
    if constexpr (kIsAfter) {
      const C of_r = of_candidate * u.gate(3) * slope_of_sigmoid(r);
      u.set(u.p.of_x, 1, kGates, of_r);
      u.set(u.p.of_h, 0, kGates, of_z);
      u.set(u.p.of_h, 1, kGates, of_r);
      u.set(u.p.of_h, 2, kGates, of_candidate * r);
    } else if (u.p.kept != nullptr) {
      u.sum(u.p.kept) = r * before;
    }
    return dh * z;
  }
};

struct SimpleGradient {
  static constexpr uint32_t kGates = 1;

  template <typename T, typename C>
  __device__ static C run(const GradientUnit<T>& u, C dh) {
    const C y = widen(*u.p.y.template at<T>(u.p.step, u.row, u.unit));
    const C of_relu = y <= 0 ? C{0} : dh;
    u.set(u.p.of_x, 0, kGates, u.p.is_relu ? of_relu : dh * slope_of_tanh(y));
    return 0;
  }
};

// A row without this step adds nothing to the sums over steps, and keeps the gradient of its state.
template <typename T, class CellGradient>
__global__ void __launch_bounds__(kBlockThreads) gradient_kernel(GradientPlan plan) {
  using C = Compute<T>;
  const uint32_t number = blockIdx.x * kBlockThreads + threadIdx.x;
  if (number >= plan.count) return;
  const GradientUnit<T> u(plan, number);
  const C carried = u.carried();
  if (plan.counts.has(plan.step, u.row)) {
    if (plan.before != nullptr) u.sum(plan.before) = u.h_before();
    u.sum(plan.rest) = CellGradient::run(
        u, carried + static_cast<C>(widen(*plan.grad_y.at<T>(plan.step, u.row, u.unit))));
    return;
  }
  u.sum(plan.rest) = carried;
  for (uint32_t gate = 0; gate < CellGradient::kGates; ++gate) {
    u.set(plan.of_x, gate, CellGradient::kGates, C{0});
    if (plan.of_h != nullptr) u.set(plan.of_h, gate, CellGradient::kGates, C{0});
  }
  if (plan.before != nullptr) u.sum(plan.before) = 0;
  if (plan.kept != nullptr) u.sum(plan.kept) = 0;
}

// Makes the gradient of r from those of all candidates, if a GRU resets the state before the
// product.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) reset_gradient_kernel(GradientPlan plan) {
  using C = Compute<T>;
  const uint32_t number = blockIdx.x * kBlockThreads + threadIdx.x;
  if (number >= plan.count) return;
  const GradientUnit<T> u(plan, number);
  if (!plan.counts.has(plan.step, u.row)) return;
  const C r = u.gate(1), of_kept = u.sum(plan.candidates);
  u.set(plan.of_x, 1, 3, of_kept * u.h_before() * slope_of_sigmoid(r));
  u.sum(plan.rest) += of_kept * r;
}

// Stores the gradient of the first h.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) first_state_kernel(GradientPlan plan) {
  const uint32_t number = blockIdx.x * kBlockThreads + threadIdx.x;
  if (number >= plan.count) return;
  const GradientUnit<T> u(plan, number);
  *plan.grad_h.at<T>(0, u.row, u.unit) = narrow<T>(u.carried());
}

// ---- On the host --------------------------------------------------------------------------------

class BackwardRun {
 public:
  BackwardRun(const SequenceBackward& s, Launch& launch)
      : s_(s), work_(s, launch), launch_(launch), base_(launch.workspace()) {
    check_workspace(launch.workspace_ref(), work_.size_bytes, "launch");
    plan_.grad_y = view_of(s.grad_y);
    plan_.grad_h = view_of(s.grad_h);
    plan_.h = view_of(s.h);
    plan_.y = view_of(s.y);
    plan_.gates = view_of(s.gates);
    if (s.lengths != nullptr) plan_.counts.counts = counts();
    plan_.rest = base_ + work_.rest;
    plan_.dc = base_ + work_.dc;
    plan_.product = base_ + work_.product;
    plan_.candidates = base_ + work_.candidates;
    plan_.count = static_cast<uint32_t>(s.rows * s.hidden);
    plan_.units = divider_of(s.hidden);
    plan_.is_relu = s.cell == Cell::kReluCell;
  }

  bp_status run() {
    bp_status status = load();
    for (int64_t number = s_.steps; number-- > 0 && status == BP_OK;) status = run_step(number);
    if (status == BP_OK) status = store();
    return status == BP_OK ? launch_sums(work_, plan_.counts, launch_) : status;
  }

 private:
  int64_t* counts() const { return reinterpret_cast<int64_t*>(base_ + work_.counts); }
  ProductOperand state_at(uint64_t offset) const {
    return dense_matrix(base_ + offset, s_.sum_dtype(), s_.rows, s_.hidden);
  }
  bp_status load_state(const bp_tensor* gradient, uint64_t offset) {
    const ProductOperand to = state_at(offset);
    const ProductOperand nothing = dense_matrix(nullptr, to.dtype, to.rows, to.cols);
    return launch_conversion(gradient == nullptr ? nothing : matrix_of(*gradient), to, launch_);
  }

  bp_status load() {
    bp_status status = launch_lengths(s_, counts(), launch_);
    if (status == BP_OK) status = load_state(s_.grad_h_next, work_.rest);
    if (status == BP_OK && s_.cell == Cell::kLstmCell)
      status = load_state(s_.grad_c_next, work_.dc);
    if (!s_.is_narrow()) return status;
    if (status == BP_OK) {
      status = launch_conversion(matrix_of(*s_.recurrent), work_.recurrent_of(base_), launch_);
    }
    if (status != BP_OK || s_.grad_x == nullptr) return status;
    return launch_conversion(matrix_of(*s_.weight), work_.weight_of(base_), launch_);
  }

  bp_status store() {
    plan_.later = s_.steps == 0 ? -1 : s_.step_at(0);
    bp_status status =
        with_float(s_.dtype, [&]<typename T>(T) { return submit<first_state_kernel<T>>(); });
    if (status == BP_OK && s_.grad_c != nullptr) {
      status = launch_conversion(state_at(work_.dc), matrix_of(*s_.grad_c), launch_);
    }
    return status;
  }

  // Returns the part of a buffer (steps, rows, cols) that a step has.
  std::byte* part(uint64_t offset, int64_t step, int64_t cols) const {
    return base_ + offset + step * s_.rows * cols * s_.sum_bytes();
  }

  // Runs number `number` of the steps.
  bp_status run_step(int64_t number) {
    const int64_t step = s_.step_at(number);
    const bool is_before = s_.cell == Cell::kResetBefore;
    plan_.step = step;
    plan_.later = number + 1 < s_.steps ? s_.step_at(number + 1) : -1;
    plan_.earlier = number > 0 ? s_.step_at(number - 1) : -1;
    plan_.of_x = part(work_.of_x, step, s_.width());
    if (s_.cell == Cell::kResetAfter) plan_.of_h = part(work_.of_h, step, s_.width());
    if (s_.grad_recurrent != nullptr) {
      plan_.before = part(work_.before, step, s_.hidden);
      if (is_before) plan_.kept = part(work_.kept, step, s_.hidden);
    }
    const bp_status status = with_float(s_.dtype, [&]<typename T>(T) { return run_cell<T>(); });
    if (status != BP_OK) return status;
    std::byte* const of_h = plan_.of_h != nullptr ? plan_.of_h : plan_.of_x;
    return work_.step.launch(work_.step_product(base_, of_h), base_ + work_.library, launch_);
  }

  template <typename T>
  bp_status run_cell() {
    switch (s_.cell) {
      case Cell::kLstmCell:
        return submit<gradient_kernel<T, LstmGradient>>();
      case Cell::kResetAfter:
        return submit<gradient_kernel<T, GruGradient<true>>>();
      case Cell::kResetBefore: {
        bp_status status = submit<gradient_kernel<T, GruGradient<false>>>();
        if (status == BP_OK) {
          status = work_.candidate.launch(work_.candidate_product(base_, plan_.of_x),
                                          base_ + work_.library, launch_);
        }
        return status == BP_OK ? submit<reset_gradient_kernel<T>>() : status;
      }
      default:
        return submit<gradient_kernel<T, SimpleGradient>>();
    }
  }

  template <auto kKernel>
  bp_status submit() {
    return cuda::run<kKernel>(launch_, blocks_for(plan_.count, kBlockThreads), kBlockThreads, 0,
                              plan_);
  }

  const SequenceBackward& s_;
  const BackwardWork work_;
  Launch& launch_;
  std::byte* const base_;
  GradientPlan plan_;
};

}  // namespace

bp_status launch_sequence(const SequenceBackward& s, Launch& launch) {
  return BackwardRun(s, launch).run();
}

}  // namespace bp::cuda
