// softmax and log_softmax along an axis, with their gradients, for tensors of every layout.
//
// A first pass finds the largest element of a row, so that exp() never overflows. A second pass
// sums, and a third one writes. The later passes read the row from the first-level cache, or from
// the second-level cache if blocks share a row. The same thread handles an element in every pass,
// so the result may be an operand.
//
// The limit is memory. 8 rows of 1048576 elements of f32 are read and written in 16 us on an H200
// at the 4.3 TB/s of its copies. Three launches with a pass each should take 30 to 40 us.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {
namespace {

constexpr uint32_t kSoftmaxReductions = 2, kBackwardReductions = 1;

struct SoftmaxPlan {
  RowTensor x, y;
  uint32_t rows = 0, count = 0;
  bool has_vectors = false;
  RowCut cut;
};

template <class Group, typename T, bool kIsLog>
__global__ void __launch_bounds__(kRowThreads) softmax_kernel(SoftmaxPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  const uint32_t count = row < plan.rows ? plan.count : 0;
  const T* const x = plan.x.row<T>(count == 0 ? 0 : row);
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
  const C sum = steps.reduce(Plus(), C{0}, [&] {
    LongSum<C> own;
    walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
      const auto values = plan.x.load<lanes()>(x, i);
      BP_UNROLL
      for (int k = 0; k < lanes(); ++k) own.add(exp(widen(values.at[k]) - peak));
    });
    return own.total();
  });
  if (steps.is_over()) return;
  const C log_sum = kIsLog ? log(sum) : C{0};
  T* const y = plan.y.row<T>(count == 0 ? 0 : row);
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    auto values = plan.x.load<lanes()>(x, i);
    BP_UNROLL
    for (int k = 0; k < lanes(); ++k) {
      const C shifted = widen(values.at[k]) - peak;
      values.at[k] = narrow<T>(kIsLog ? shifted - log_sum : exp(shifted) / sum);
    }
    plan.y.store(y, i, values);
  });
}

struct SoftmaxBackwardPlan {
  RowTensor grad_y, y, grad_x;
  uint32_t rows = 0, count = 0;
  bool has_vectors = false;
  RowCut cut;
};

// The gradient of softmax is y * (grad_y - s) with s = sum(grad_y * y). The gradient of log_softmax
// is grad_y - exp(y) * s with s = sum(grad_y).
template <class Group, typename T, bool kIsLog>
__global__ void __launch_bounds__(kRowThreads) softmax_backward_kernel(SoftmaxBackwardPlan plan) {
  using C = Compute<T>;
  const uint32_t row = Group::row();
  const uint32_t count = row < plan.rows ? plan.count : 0;
  const uint32_t inside = count == 0 ? 0 : row;
  const T* const grad_y = plan.grad_y.row<T>(inside);
  const T* const y = plan.y.row<T>(inside);
  RowSteps<Group> steps(plan.cut, plan.rows);
  const C sum = steps.reduce(Plus(), C{0}, [&] {
    LongSum<C> own;
    walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
      const auto g = plan.grad_y.load<lanes()>(grad_y, i);
      const auto saved = plan.y.load<lanes()>(y, i);
      BP_UNROLL
      for (int k = 0; k < lanes(); ++k) {
        own.add(kIsLog ? widen(g.at[k]) : widen(g.at[k]) * widen(saved.at[k]));
      }
    });
    return own.total();
  });
  if (steps.is_over()) return;
  T* const grad_x = plan.grad_x.row<T>(inside);
  walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
    auto g = plan.grad_y.load<lanes()>(grad_y, i);
    const auto saved = plan.y.load<lanes()>(y, i);
    BP_UNROLL
    for (int k = 0; k < lanes(); ++k) {
      const C gradient = widen(g.at[k]), value = widen(saved.at[k]);
      g.at[k] = narrow<T>(kIsLog ? gradient - exp(value) * sum : value * (gradient - sum));
    }
    plan.grad_x.store(grad_x, i, g);
  });
}

template <bool kIsLog>
bp_status submit_softmax(const bp_tensor& x, const bp_tensor& y, int32_t axis, Launch& launch) {
  const uint32_t axes = 1u << axis;
  const RowExtents extents = row_extents(x, axes);
  SoftmaxPlan plan;
  plan.x = row_tensor(x, axes);
  plan.y = row_tensor(y, axes);
  plan.rows = static_cast<uint32_t>(extents.rows);
  plan.count = static_cast<uint32_t>(extents.count);
  plan.has_vectors = plan.x.has_vectors && plan.y.has_vectors;
  plan.cut.parts = launch.workspace();
  return with_float(x.dtype, [&]<typename T>(T) {
    return run_rows(plan.x, extents, kSoftmaxReductions, plan,
                    [&]<class Group>(Group, dim3 blocks, const SoftmaxPlan& step) {
                      return run<softmax_kernel<Group, T, kIsLog>>(launch, blocks, kRowThreads, 0,
                                                                   step);
                    });
  });
}

template <bool kIsLog, typename Args>
bp_status submit_backward(const Args& args, Launch& launch) {
  const uint32_t axes = 1u << args.axis;
  const RowExtents extents = row_extents(*args.y, axes);
  SoftmaxBackwardPlan plan;
  plan.grad_y = row_tensor(*args.grad_y, axes);
  plan.y = row_tensor(*args.y, axes);
  plan.grad_x = row_tensor(*args.grad_x, axes);
  plan.rows = static_cast<uint32_t>(extents.rows);
  plan.count = static_cast<uint32_t>(extents.count);
  plan.has_vectors = plan.grad_y.has_vectors && plan.y.has_vectors && plan.grad_x.has_vectors;
  plan.cut.parts = launch.workspace();
  return with_float(args.y->dtype, [&]<typename T>(T) {
    return run_rows(plan.y, extents, kBackwardReductions, plan,
                    [&]<class Group>(Group, dim3 blocks, const SoftmaxBackwardPlan& step) {
                      return run<softmax_backward_kernel<Group, T, kIsLog>>(launch, blocks,
                                                                            kRowThreads, 0, step);
                    });
  });
}

bp_status softmax_launch(const bp_softmax_args& args, Launch& launch) {
  return submit_softmax<false>(*args.x, *args.y, args.axis, launch);
}
bp_status log_softmax_launch(const bp_log_softmax_args& args, Launch& launch) {
  return submit_softmax<true>(*args.x, *args.y, args.axis, launch);
}
bp_status softmax_backward_launch(const bp_softmax_backward_args& args, Launch& launch) {
  return submit_backward<false>(args, launch);
}
bp_status log_softmax_backward_launch(const bp_log_softmax_backward_args& args, Launch& launch) {
  return submit_backward<true>(args, launch);
}

template <typename Args>
bp_reason supports(const Args& args) {
  return too_many_rows(*args.y, 1u << args.axis);
}

template <typename Args>
uint64_t softmax_workspace(const Args& args, const Env&) {
  const uint32_t axes = 1u << args.axis;
  return row_parts_bytes(row_tensor(*args.x, axes), row_extents(*args.x, axes), kSoftmaxReductions);
}

template <typename Args>
uint64_t backward_workspace(const Args& args, const Env&) {
  const uint32_t axes = 1u << args.axis;
  return row_parts_bytes(row_tensor(*args.y, axes), row_extents(*args.y, axes),
                         kBackwardReductions);
}

constexpr auto kFlags = BP_KERNEL_IN_PLACE;

}  // namespace

constinit const bp_kernel kSoftmax =
    make_kernel<bp_softmax_args, softmax_launch, supports<bp_softmax_args>,
                softmax_workspace<bp_softmax_args>>(
        kernel_row("softmax", BP_OP_SOFTMAX, kFloatDtypes, kFlags));
constinit const bp_kernel kLogSoftmax =
    make_kernel<bp_log_softmax_args, log_softmax_launch, supports<bp_log_softmax_args>,
                softmax_workspace<bp_log_softmax_args>>(
        kernel_row("log_softmax", BP_OP_LOG_SOFTMAX, kFloatDtypes, kFlags));
constinit const bp_kernel kSoftmaxBackward =
    make_kernel<bp_softmax_backward_args, softmax_backward_launch,
                supports<bp_softmax_backward_args>, backward_workspace<bp_softmax_backward_args>>(
        kernel_row("softmax_backward", BP_OP_SOFTMAX_BACKWARD, kFloatDtypes, kFlags));
constinit const bp_kernel kLogSoftmaxBackward =
    make_kernel<bp_log_softmax_backward_args, log_softmax_backward_launch,
                supports<bp_log_softmax_backward_args>,
                backward_workspace<bp_log_softmax_backward_args>>(
        kernel_row("log_softmax_backward", BP_OP_LOG_SOFTMAX_BACKWARD, kFloatDtypes, kFlags));

}  // namespace bp::cuda
