// cross_entropy and its gradient, and nll_loss. A group of threads computes a row: its largest
// element, the sum of the exponentials, and the loss in f64. One block adds the losses of all rows,
// in an order that depends on their number alone.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {
namespace {

enum class Reduce : uint32_t { kNone, kMean, kSum };

struct Targets {
  RowTensor tensor;
  bool is_i64 = false;
  int64_t ignore_index = 0;
  Bounds bounds;  // Of the classes.
  Reporter reporter{};

  // Returns the class of a row, or ignore_index.
  __device__ __forceinline__ int64_t at(uint32_t row) const {
    const int64_t target = is_i64 ? *tensor.row<int64_t>(row) : *tensor.row<int32_t>(row);
    return target == ignore_index ? target : bounds.acting(target);
  }
  __device__ __forceinline__ bool is_class(int64_t target) const { return bounds.contains(target); }
  __device__ __forceinline__ void report_row(uint32_t row) const {
    const void* const place =
        is_i64 ? static_cast<const void*>(tensor.row<int64_t>(row)) : tensor.row<int32_t>(row);
    report(reporter, at(row), place);
  }
};

constexpr uint32_t kLossReductions = 2;  // Of a row, in losses_kernel().

struct LossPlan {
  RowTensor x, y;
  OptionalRows lse;
  Targets targets;
  double label_smoothing = 0;
  double* losses = nullptr;  // One loss for each row.
  double* kept = nullptr;    // How many rows count.
  Reduce reduction = Reduce::kNone;
  uint32_t rows = 0, count = 0;
  bool has_vectors = false;
  RowCut cut;
};

template <class Group, typename T>
__global__ void __launch_bounds__(kRowThreads, 4) losses_kernel(LossPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  const bool is_inside = row < plan.rows;
  const uint32_t count = is_inside ? plan.count : 0;
  const T* const x = plan.x.row<T>(is_inside ? row : 0);
  RowSteps<Group> steps(plan.cut, plan.rows);
  const C peak = steps.reduce(Larger(), -infinity<C>(), [&] {
    C own = -infinity<C>();
    walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
      const auto values = plan.x.load<lanes()>(x, i);
      BP_UNROLL
      for (int k = 0; k < lanes(); ++k) own = Larger()(own, widen(values.at[k]));
    });
    return own;
  });
  if (steps.is_over()) return;
  // The sum of the exponentials, and that of the elements.
  const auto sums = steps.reduce(Plus(), SumPair<C>{0, 0}, [&] {
    LongSum<C> sum, total;
    walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
      const auto values = plan.x.load<lanes()>(x, i);
      BP_UNROLL
      for (int k = 0; k < lanes(); ++k) {
        sum.add(exp(widen(values.at[k]) - peak));
        total.add(widen(values.at[k]));
      }
    });
    return SumPair<C>{sum.total(), total.total()};
  });
  if (steps.is_over() || !is_inside || !Group::leads()) return;
  const double lse = static_cast<double>(peak) + log(static_cast<double>(sums.first));
  if (plan.lse.is_given) *plan.lse.tensor.row<C>(row) = static_cast<C>(lse);
  const int64_t target = plan.targets.at(row);
  double loss = 0;
  if (target != plan.targets.ignore_index) {
    if (!plan.targets.is_class(target)) return plan.targets.report_row(row);
    const T picked = x[plan.x.elements.offset(static_cast<uint32_t>(target))];
    loss = lse - static_cast<double>(widen(picked));
    if (plan.label_smoothing != 0) {
      const double mean = static_cast<double>(sums.second) / static_cast<double>(plan.count);
      loss = (1 - plan.label_smoothing) * loss + plan.label_smoothing * (lse - mean);
    }
  }
  if (plan.reduction == Reduce::kNone) {
    *plan.y.row<T>(row) = narrow<T>(loss);
  } else {
    plan.losses[row] = loss;
  }
}

// Picks the losses of nll_loss: a thread takes a row.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) picked_losses_kernel(LossPlan plan) {
  const uint32_t row = blockIdx.x * kRowThreads + threadIdx.x;
  if (row >= plan.rows) return;
  const int64_t target = plan.targets.at(row);
  Compute<T> loss = 0;
  if (target != plan.targets.ignore_index) {
    if (!plan.targets.is_class(target)) return plan.targets.report_row(row);
    const T* const x = plan.x.row<T>(row);
    loss = -widen(x[plan.x.elements.offset(static_cast<uint32_t>(target))]);
  }
  if (plan.reduction == Reduce::kNone) {
    *plan.y.row<T>(row) = narrow<T>(loss);
  } else {
    plan.losses[row] = static_cast<double>(loss);
  }
}

// Runs with one block.
template <typename T>
__global__ void __launch_bounds__(kRowThreads, 4) total_loss_kernel(LossPlan plan) {
  double total = 0, kept = 0;
  for (uint32_t row = threadIdx.x; row < plan.rows; row += kRowThreads) {
    total += plan.losses[row];
    kept += plan.targets.at(row) != plan.targets.ignore_index ? 1 : 0;
  }
  total = block_reduce(total, Plus(), 0.0);
  kept = block_reduce(kept, Plus(), 0.0);
  if (threadIdx.x != 0) return;
  *plan.y.row<T>(0) = narrow<T>(plan.reduction == Reduce::kMean ? total / kept : total);
}

// Counts with one block how many rows count, for the gradient of the mean.
__global__ void __launch_bounds__(kRowThreads, 4) count_kept_kernel(LossPlan plan) {
  double kept = 0;
  for (uint32_t row = threadIdx.x; row < plan.rows; row += kRowThreads) {
    kept += plan.targets.at(row) != plan.targets.ignore_index ? 1 : 0;
  }
  kept = block_reduce(kept, Plus(), 0.0);
  if (threadIdx.x == 0) *plan.kept = kept;
}

// `plan.y` is grad_x, and `grad_y` is grad_y. One thread reads and writes an element, so grad_x may
// be x.
template <class Group, typename T>
__global__ void __launch_bounds__(kRowThreads, 4)
    loss_backward_kernel(LossPlan plan, RowTensor grad_y) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  if (row >= plan.rows) return;
  const T* const x = plan.x.row<T>(row);
  T* const grad_x = plan.y.row<T>(row);
  const int64_t target = plan.targets.at(row);
  const bool is_ignored = target == plan.targets.ignore_index;
  if (!is_ignored && !plan.targets.is_class(target)) return plan.targets.report_row(row);
  const C lse = *plan.lse.tensor.row<C>(row);
  const double divisor = plan.reduction == Reduce::kMean ? *plan.kept : 1.0;
  const T gradient = *grad_y.row<T>(plan.reduction == Reduce::kNone ? row : 0);
  const C scale = static_cast<C>(static_cast<double>(widen(gradient)) / divisor);
  const double base = plan.label_smoothing / static_cast<double>(plan.count);
  const C of_others = static_cast<C>(base);
  const C of_target = static_cast<C>(1 - plan.label_smoothing + base);
  walk_row<Group, T>(plan.count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    auto values = plan.x.load<lanes()>(x, i);
    BP_UNROLL
    for (int k = 0; k < lanes(); ++k) {
      const C share = i + static_cast<uint32_t>(k) == target ? of_target : of_others;
      const C slope = exp(widen(values.at[k]) - lse) - share;
      values.at[k] = is_ignored ? T(0) : narrow<T>(scale * slope);
    }
    plan.y.store(grad_x, i, values);
  });
}

// Both frames number the reductions in the same way.
static_assert(uint32_t{BP_CROSS_ENTROPY_REDUCTION_NONE} ==
                  uint32_t{BP_CROSS_ENTROPY_BACKWARD_REDUCTION_NONE} &&
              uint32_t{BP_CROSS_ENTROPY_REDUCTION_MEAN} ==
                  uint32_t{BP_CROSS_ENTROPY_BACKWARD_REDUCTION_MEAN} &&
              uint32_t{BP_CROSS_ENTROPY_REDUCTION_SUM} ==
                  uint32_t{BP_CROSS_ENTROPY_BACKWARD_REDUCTION_SUM});

bool read_reduction(uint32_t value, Reduce& reduction) {
  switch (value) {
    case BP_CROSS_ENTROPY_REDUCTION_NONE:
      reduction = Reduce::kNone;
      return true;
    case BP_CROSS_ENTROPY_REDUCTION_MEAN:
      reduction = Reduce::kMean;
      return true;
    case BP_CROSS_ENTROPY_REDUCTION_SUM:
      reduction = Reduce::kSum;
      return true;
    default:
      return false;
  }
}

constexpr uint32_t kClassAxis = 1u << 1;

template <typename Args>
bp_reason supports(const Args& args) {
  Reduce reduction;
  if (!read_reduction(args.reduction, reduction)) return "the reduction is not known";
  return too_many_rows(*args.x, kClassAxis);
}

template <typename Args>
LossPlan plan_of(const Args& args, Launch& launch) {
  const RowExtents extents = row_extents(*args.x, kClassAxis);
  LossPlan plan;
  plan.x = row_tensor(*args.x, kClassAxis);
  if constexpr (requires { args.lse; }) {
    plan.lse = {args.lse, 0};
    plan.label_smoothing = args.label_smoothing;
  }
  plan.targets.tensor = rows_only(*args.target);
  plan.targets.is_i64 = is_i64_index(args.target->dtype);
  plan.targets.ignore_index = args.ignore_index;
  plan.targets.bounds = {extents.count, args.bounds};
  plan.targets.reporter = launch.reporter(*args.target, "target", extents.count);
  plan.rows = static_cast<uint32_t>(extents.rows);
  plan.count = static_cast<uint32_t>(extents.count);
  return plan;
}

// Returns the size of the losses of all rows, in whole units of 16 bytes.
uint64_t losses_bytes(const bp_tensor& x) {
  return (static_cast<uint64_t>(x.shape[0]) * sizeof(double) + 15) / 16 * 16;
}

bp_status forward_launch(const bp_cross_entropy_args& args, Launch& launch) {
  if (const bp_reason reason = supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("cross_entropy: ") + reason);
  }
  LossPlan plan = plan_of(args, launch);
  read_reduction(args.reduction, plan.reduction);
  plan.y = rows_only(*args.y);
  plan.losses = launch.workspace<double>();
  plan.cut.parts = launch.workspace() + losses_bytes(*args.x);
  plan.has_vectors = plan.x.has_vectors;
  const RowExtents extents = row_extents(*args.x, kClassAxis);
  return with_float(args.x->dtype, [&]<typename T>(T) {
    const bp_status status =
        run_rows(plan.x, extents, kLossReductions, plan,
                 [&]<class Group>(Group, dim3 blocks, const LossPlan& step) {
                   return run<losses_kernel<Group, T>>(launch, blocks, kRowThreads, 0, step);
                 });
    if (status != BP_OK || plan.reduction == Reduce::kNone) return status;
    return run<total_loss_kernel<T>>(launch, 1, kRowThreads, 0, plan);
  });
}

uint64_t forward_workspace(const bp_cross_entropy_args& args, const Env&) {
  return losses_bytes(*args.x) + row_parts_bytes(row_tensor(*args.x, kClassAxis),
                                                 row_extents(*args.x, kClassAxis), kLossReductions);
}

bp_status backward_launch(const bp_cross_entropy_backward_args& args, Launch& launch) {
  if (const bp_reason reason = supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("cross_entropy_backward: ") + reason);
  }
  LossPlan plan = plan_of(args, launch);
  read_reduction(args.reduction, plan.reduction);
  plan.y = row_tensor(*args.grad_x, kClassAxis);
  plan.kept = launch.workspace<double>();
  plan.has_vectors = plan.x.has_vectors && plan.y.has_vectors;
  if (plan.reduction == Reduce::kMean) {
    const bp_status status = run<count_kept_kernel>(launch, 1, kRowThreads, 0, plan);
    if (status != BP_OK) return status;
  }
  const RowTensor grad_y = rows_only(*args.grad_y);
  const RowExtents extents = row_extents(*args.x, kClassAxis);
  return with_float(args.x->dtype, [&]<typename T>(T) {
    return run_rows(
        plan.x, extents, 0, plan, [&]<class Group>(Group, dim3 blocks, const LossPlan& step) {
          return run<loss_backward_kernel<Group, T>>(launch, blocks, kRowThreads, 0, step, grad_y);
        });
  });
}

bp_status picked_launch(const bp_nll_loss_args& args, Launch& launch) {
  if (const bp_reason reason = supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("nll_loss: ") + reason);
  }
  LossPlan plan = plan_of(args, launch);
  read_reduction(args.reduction, plan.reduction);
  plan.y = rows_only(*args.y);
  plan.losses = launch.workspace<double>();
  return with_float(args.x->dtype, [&]<typename T>(T) {
    if (plan.rows != 0) {
      const bp_status status = run<picked_losses_kernel<T>>(
          launch, blocks_for(plan.rows, kRowThreads), kRowThreads, 0, plan);
      if (status != BP_OK) return status;
    }
    if (plan.reduction == Reduce::kNone) return bp_status{BP_OK};
    return run<total_loss_kernel<T>>(launch, 1, kRowThreads, 0, plan);
  });
}

uint64_t picked_workspace(const bp_nll_loss_args& args, const Env&) {
  return losses_bytes(*args.x);
}

uint64_t backward_workspace(const bp_cross_entropy_backward_args&, const Env&) {
  return sizeof(double);
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

constinit const bp_kernel kNllLoss =
    make_kernel<bp_nll_loss_args, picked_launch, supports<bp_nll_loss_args>, picked_workspace>(
        kernel_row("nll_loss", BP_OP_NLL_LOSS, {kDtypes, 2}));

constinit const bp_kernel kCrossEntropy =
    make_kernel<bp_cross_entropy_args, forward_launch, supports<bp_cross_entropy_args>,
                forward_workspace>(kernel_row("cross_entropy", BP_OP_CROSS_ENTROPY, {kDtypes, 2}));
constinit const bp_kernel kCrossEntropyBackward =
    make_kernel<bp_cross_entropy_backward_args, backward_launch,
                supports<bp_cross_entropy_backward_args>, backward_workspace>(kernel_row(
        "cross_entropy_backward", BP_OP_CROSS_ENTROPY_BACKWARD, {kDtypes, 2}, BP_KERNEL_IN_PLACE));

}  // namespace bp::cuda
