// The losses between the elements of two tensors: one loss for each pair, their sum or their mean.
// All elements are one row. Without a reduction a thread writes the losses of 16 bytes of elements;
// for a sum, blocks share the row, and their parts are added in an order that depends on the number
// of elements alone (rows.cuh). The op is the same for all threads, so they do not diverge.
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/rows.cuh"
#include "backplane/shell/frame.hpp"

namespace bp::cuda {
namespace {

struct ElementLossPlan {
  uint32_t op = 0;
  RowTensor x, target, y;
  OptionalRows pos_weight, weight;
  double width = 0;  // That of the parabola.
  bool is_mean = false;
  uint32_t count = 0;
  bool has_vectors = false;
  RowCut cut;
};

// One loss with the weights that belong to it, which are 1 if absent.
template <typename C>
struct LossTerms {
  C x, target, pos_weight, weight;
};

template <typename C>
__device__ C parabola_loss(C distance, C width, bool is_divided) {
  const C near = primitive::min(distance, width);
  const C rest = distance - product_of(near, C(0.5));
  return is_divided ? near / width * rest : near * rest;
}

// -log(sigmoid(x)) and -log(sigmoid(-x)) share log(1 + exp(-|x|)).
template <typename C>
__device__ C binary_loss(const LossTerms<C>& t) {
  const C shared = log1p(exp(-fabs(t.x)));
  const C of_one = shared - primitive::min(t.x, C{0}), of_zero = shared + primitive::max(t.x, C{0});
  return (t.target * of_one * t.pos_weight + (C{1} - t.target) * of_zero) * t.weight;
}

template <typename C>
__device__ C loss_of(const ElementLossPlan& plan, const LossTerms<C>& t) {
  const C difference = t.x - t.target;
  switch (plan.op) {
    case BP_OP_MSE_LOSS:
      return difference * difference;
    case BP_OP_L1_LOSS:
      return fabs(difference);
    case BP_OP_SMOOTH_L1_LOSS:
      return parabola_loss(fabs(difference), static_cast<C>(plan.width), true);
    case BP_OP_HUBER_LOSS:
      return parabola_loss(fabs(difference), static_cast<C>(plan.width), false);
    case BP_OP_BCE_WITH_LOGITS_LOSS:
      return binary_loss(t);
    default:
      return t.target == 0 ? C{0} : t.target * (log(t.target) - t.x);
  }
}

// Calls each(k, loss) for kCount elements from number i on.
template <typename T, int kCount, typename Fn>
__device__ __forceinline__ void compute_losses(const ElementLossPlan& plan, uint32_t i,
                                               const Fn& each) {
  using C = Compute<T>;
  const auto x = plan.x.load<kCount>(plan.x.row<T>(0), i);
  const auto target = plan.target.load<kCount>(plan.target.row<T>(0), i);
  Vec<T, kCount> pos_weight, weight;
  if (plan.pos_weight.is_given) {
    const RowTensor& from = plan.pos_weight.tensor;
    pos_weight = from.load<kCount>(from.row<T>(0), i);
  }
  if (plan.weight.is_given) {
    const RowTensor& from = plan.weight.tensor;
    weight = from.load<kCount>(from.row<T>(0), i);
  }
  BP_UNROLL
  for (int k = 0; k < kCount; ++k) {
    const LossTerms<C> terms = {widen(x.at[k]), widen(target.at[k]),
                                plan.pos_weight.is_given ? widen(pos_weight.at[k]) : C{1},
                                plan.weight.is_given ? widen(weight.at[k]) : C{1}};
    each(k, loss_of(plan, terms));
  }
}

template <typename T, int kCount>
__device__ __forceinline__ void write_losses(const ElementLossPlan& plan, uint32_t i) {
  Vec<T, kCount> result;
  compute_losses<T, kCount>(plan, i,
                            [&](int k, Compute<T> loss) { result.at[k] = narrow<T>(loss); });
  plan.y.store(plan.y.row<T>(0), i, result);
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) losses_kernel(ElementLossPlan plan) {
  const uint32_t unit = blockIdx.x * kBlockThreads + threadIdx.x;
  const uint32_t units = plan.has_vectors ? plan.count / kLanes<T> : 0;
  if (unit < units) return write_losses<T, kLanes<T>>(plan, unit * kLanes<T>);
  const uint32_t i = units * kLanes<T> + (unit - units);
  if (i < plan.count) write_losses<T, 1>(plan, i);
}

template <class Group, typename T>
__global__ void __launch_bounds__(kRowThreads) total_losses_kernel(ElementLossPlan plan) {
  using C = Compute<T>;
  constexpr uint32_t kRows = 1;
  const uint32_t count = Group::row() < kRows ? plan.count : 0;
  RowSteps<Group> steps(plan.cut, kRows);
  const C total = steps.reduce(Plus(), C{0}, [&] {
    LongSum<C> own;
    walk_row<Group, T>(count, plan.has_vectors, [&](auto lanes, uint32_t i) {
      compute_losses<T, lanes()>(plan, i, [&](int, C loss) { own.add(loss); });
    });
    return own.total();
  });
  if (steps.is_over() || Group::row() >= kRows || !Group::leads()) return;
  *plan.y.row<T>(0) = narrow<T>(plan.is_mean ? total / static_cast<C>(plan.count) : total);
}

uint32_t all_axes(const bp_tensor& x) { return (1u << x.ndim) - 1; }

template <uint32_t kOp, typename Args>
ElementLossPlan plan_of(const Args& args) {
  const uint32_t axes = all_axes(*args.x);
  ElementLossPlan plan;
  plan.op = kOp;
  plan.x = row_tensor(*args.x, axes);
  plan.target = row_tensor(*args.target, axes);
  plan.y = elements_only(*args.y);
  if constexpr (requires { args.beta; }) plan.width = args.beta;
  if constexpr (requires { args.delta; }) plan.width = args.delta;
  if constexpr (requires { args.pos_weight; }) {
    plan.pos_weight = {args.pos_weight, axes};
    plan.weight = {args.weight, axes};
  }
  // All losses share the values of their reductions.
  plan.is_mean = args.reduction == BP_MSE_LOSS_REDUCTION_MEAN;
  plan.count = static_cast<uint32_t>(element_count(*args.x));
  plan.has_vectors = plan.x.has_vectors && plan.target.has_vectors &&
                     plan.pos_weight.allows_vectors() && plan.weight.allows_vectors();
  return plan;
}

RowExtents extents_of(const bp_tensor& x) { return row_extents(x, all_axes(x)); }

template <typename Args>
bp_reason loss_supports(const Args& args) {
  if (args.reduction < 1 || args.reduction > 3) return "the reduction is not known";
  return too_many_rows(*args.x, all_axes(*args.x));
}

template <typename Args, uint32_t kOp>
bp_status loss_launch(const Args& args, Launch& launch) {
  if (const bp_reason reason = loss_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string(op_name(kOp)) + ": " + reason);
  }
  ElementLossPlan plan = plan_of<kOp>(args);
  const bool is_none = args.reduction == BP_MSE_LOSS_REDUCTION_NONE;
  if (is_none && plan.count == 0) return BP_OK;
  if (is_none) plan.has_vectors = plan.has_vectors && plan.y.has_vectors;
  plan.cut.parts = launch.workspace();
  return with_float(args.x->dtype, [&]<typename T>(T) {
    if (is_none) {
      const uint32_t units =
          plan.has_vectors ? plan.count / kLanes<T> + plan.count % kLanes<T> : plan.count;
      return run<losses_kernel<T>>(launch, blocks_for(units, kBlockThreads), kBlockThreads, 0,
                                   plan);
    }
    return run_rows(plan.x, extents_of(*args.x), 1, plan,
                    [&]<class Group>(Group, dim3 blocks, const ElementLossPlan& step) {
                      return run<total_losses_kernel<Group, T>>(launch, blocks, kRowThreads, 0,
                                                                step);
                    });
  });
}

template <typename Args>
uint64_t loss_workspace(const Args& args, const Env&) {
  if (args.reduction == BP_MSE_LOSS_REDUCTION_NONE) return 0;
  return row_parts_bytes(row_tensor(*args.x, all_axes(*args.x)), extents_of(*args.x), 1);
}

template <typename Args, uint32_t kOp>
constexpr bp_kernel loss_kernel(const char* name) {
  return make_kernel<Args, loss_launch<Args, kOp>, loss_supports<Args>, loss_workspace<Args>>(
      kernel_row(name, kOp, kFloatDtypes));
}

}  // namespace

constinit const bp_kernel kMseLoss = loss_kernel<bp_mse_loss_args, BP_OP_MSE_LOSS>("mse_loss");
constinit const bp_kernel kL1Loss = loss_kernel<bp_l1_loss_args, BP_OP_L1_LOSS>("l1_loss");
constinit const bp_kernel kSmoothL1Loss =
    loss_kernel<bp_smooth_l1_loss_args, BP_OP_SMOOTH_L1_LOSS>("smooth_l1_loss");
constinit const bp_kernel kHuberLoss =
    loss_kernel<bp_huber_loss_args, BP_OP_HUBER_LOSS>("huber_loss");
constinit const bp_kernel kBceWithLogitsLoss =
    loss_kernel<bp_bce_with_logits_loss_args, BP_OP_BCE_WITH_LOGITS_LOSS>("bce_with_logits_loss");
constinit const bp_kernel kKlDivLoss =
    loss_kernel<bp_kl_div_loss_args, BP_OP_KL_DIV_LOSS>("kl_div_loss");

}  // namespace bp::cuda
