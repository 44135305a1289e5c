// The losses between the elements of two tensors: one loss for each pair, their sum or their mean.
//
// A functor computes the losses of vectors of elements. Without a reduction it is the map of an
// element-wise loop (rows-inl.hpp). A sum walks the same operands in blocks of kLoopBlock elements,
// in the order of the strides of x. Runs of kBlock losses are added in the compute type, and their
// sums in f64. The sums of blocks lie in the workspace until they are added in order, so equal
// input gives equal bits for any number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/element_loss.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <cstring>
#include <string>
#include <tuple>

#include "backends/host_kernels/element_loss.hpp"
#include "backends/host_kernels/elementwise-inl.hpp"
#include "backends/host_kernels/loop_blocks.hpp"
#include "backends/host_kernels/sums-inl.hpp"
#include "backends/host_kernels/targets.hpp"
#include "backplane/shell/frame.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct MseLoss {
  template <class D, class V>
  HWY_INLINE V operator()(D, V x, V target) const {
    const V difference = hn::Sub(x, target);
    return hn::Mul(difference, difference);
  }
};

struct L1Loss {
  template <class D, class V>
  HWY_INLINE V operator()(D, V x, V target) const {
    return hn::Abs(hn::Sub(x, target));
  }
};

struct HuberLoss {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V target, V delta) const {
    const V distance = hn::Abs(hn::Sub(x, target)), near = smaller_of(d, distance, delta);
    return hn::Mul(near, hn::Sub(distance, hn::Mul(near, half(d))));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> half(D d) {
    return hn::Set(d, static_cast<hn::TFromD<D>>(0.5));
  }
};

// It divides before it multiplies, because a product could overflow.
struct SmoothL1Loss {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V target, V beta) const {
    const V distance = hn::Abs(hn::Sub(x, target)), near = smaller_of(d, distance, beta);
    const V rest = hn::Sub(distance, hn::Mul(near, HuberLoss::half(d)));
    return hn::Mul(hn::Div(near, beta), rest);
  }
};

// -log(sigmoid(x)) and -log(sigmoid(-x)) share log(1 + exp(-|x|)). The weights are that of the
// first one and that of their sum, as far as they are given.
template <bool kHasPosWeight, bool kHasWeight>
struct BceWithLogitsLoss {
  template <class D, class V, class... W>
  HWY_INLINE V operator()(D d, V x, V target, W... weights) const {
    const V shared = log1p(d, exp_of_negative(d, negative_abs(d, x)));
    const V of_one = hn::Sub(shared, smaller_of(d, x, hn::Zero(d)));
    const V of_zero = hn::Add(shared, positive_part(d, x));
    const std::tuple<W...> given(weights...);
    V first = hn::Mul(target, of_one);
    if constexpr (kHasPosWeight) first = hn::Mul(first, std::get<0>(given));
    const V rest = hn::Sub(hn::Set(d, hn::TFromD<D>{1}), target);
    const V loss = hn::Add(first, hn::Mul(rest, of_zero));
    if constexpr (kHasWeight) return hn::Mul(loss, std::get<sizeof...(W) - 1>(given));
    return loss;
  }
};

struct KlDivLoss {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V target) const {
    const V loss = hn::Mul(target, hn::Sub(log(d, target), x));
    return hn::IfThenZeroElse(hn::Eq(target, hn::Zero(d)), loss);
  }
};

struct Weigh {
  template <class D, class V>
  HWY_INLINE V operator()(D, V loss, V weight) const {
    return hn::Mul(loss, weight);
  }
};

// Adds Op()(d, x...) of a row to the sum of a block.
template <class Op, typename T, typename... X>
struct LossSum {
  static void run(std::byte* const* data, const int64_t* strides, int64_t count,
                  const void* context) {
    double& sum = *static_cast<const BlockSum*>(context)->sum;
    run(data, strides, count, sum, std::index_sequence_for<X...>());
  }

 private:
  template <size_t... k>
  static void run(std::byte* const* data, const int64_t* strides, int64_t count, double& sum,
                  std::index_sequence<k...>) {
    const ComputeTag<T> d;
    std::tuple<BlockBuffer<X>...> buffers;
    for (int64_t i = 0, n = 0; i < count; i += n) {
      n = std::min(kBlock, count - i);
      const std::tuple<const X*...> from(
          gather_block(data[k], strides[k], count, i, n, std::get<k>(buffers))...);
      sum += static_cast<double>(sum_of_terms<T>(n, [&](auto lanes) HWY_ATTR {
        (prefetch(std::get<k>(from) + lanes.at, kAheadBytes / int64_t{sizeof(X)}), ...);
        return Op()(d, lanes.load(std::get<k>(from))...);
      }));
    }
  }
};

template <class Op, typename T, typename... X>
LossRows loss_rows() {
  return {Row<Map<Op, T>, T, X...>::run, LossSum<Op, T, X...>::run};
}

template <typename T>
LossRows bce_rows(bool has_pos_weight, bool has_weight) {
  using C = Compute<T>;
  if (!has_pos_weight && !has_weight) return loss_rows<BceWithLogitsLoss<false, false>, T, T, T>();
  if (!has_weight) return loss_rows<BceWithLogitsLoss<true, false>, T, T, T, T>();
  if (!has_pos_weight) return loss_rows<BceWithLogitsLoss<false, true>, T, T, T, T>();
  return {Row<Map<BceWithLogitsLoss<true, false>, C>, C, T, T, T>::run,
          LossSum<BceWithLogitsLoss<true, true>, T, T, T, T, T>::run,
          Row<Map<Weigh, T>, T, C, T>::run};
}

LossRows find_loss_rows(uint32_t op, bp_dtype dtype, bool has_pos_weight, bool has_weight) {
  return with_float(dtype, [&]<typename T>(T) -> LossRows {
    switch (op) {
      case BP_OP_MSE_LOSS:
        return loss_rows<MseLoss, T, T, T>();
      case BP_OP_L1_LOSS:
        return loss_rows<L1Loss, T, T, T>();
      case BP_OP_SMOOTH_L1_LOSS:
        return loss_rows<SmoothL1Loss, T, T, T, Compute<T>>();
      case BP_OP_HUBER_LOSS:
        return loss_rows<HuberLoss, T, T, T, Compute<T>>();
      case BP_OP_KL_DIV_LOSS:
        return loss_rows<KlDivLoss, T, T, T>();
      case BP_OP_BCE_WITH_LOGITS_LOSS:
        return bce_rows<T>(has_pos_weight, has_weight);
      default:
        throw StatusError(BP_INTERNAL, "no loss has the op " + std::to_string(op));
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_loss_rows);

struct LossCall {
  uint32_t op;
  const bp_tensor &x, &target, &y;
  uint32_t reduction;
  bool has_width = false;
  double width = 0;  // That of the parabola.
  const bp_tensor* pos_weight = nullptr;
  const bp_tensor* weight = nullptr;

  bool is_none() const { return reduction == BP_NLL_LOSS_REDUCTION_NONE; }
  // The losses wait for their weight.
  bool is_weighed_later() const { return is_none() && pos_weight != nullptr && weight != nullptr; }
  bool is_long() const { return op == BP_OP_BCE_WITH_LOGITS_LOSS || op == BP_OP_KL_DIV_LOSS; }
  int64_t grain() const { return is_long() ? kMathGrain : kGrain; }
};

template <uint32_t kOp, typename Args>
LossCall call_of(const Args& args) {
  LossCall call{kOp, *args.x, *args.target, *args.y, args.reduction};
  if constexpr (requires { args.beta; }) call.width = args.beta;
  if constexpr (requires { args.delta; }) call.width = args.delta;
  call.has_width = kOp == BP_OP_SMOOTH_L1_LOSS || kOp == BP_OP_HUBER_LOSS;
  if constexpr (requires { args.pos_weight; }) {
    call.pos_weight = args.pos_weight;
    call.weight = args.weight;
  }
  return call;
}

// Returns the bits of the width in the compute type.
uint64_t width_bits(const LossCall& call) {
  uint64_t bits = 0;
  const auto narrow_width = static_cast<float>(call.width);
  if (call.x.dtype == BP_F64) {
    std::memcpy(&bits, &call.width, sizeof(call.width));
  } else {
    std::memcpy(&bits, &narrow_width, sizeof(narrow_width));
  }
  return bits;
}

LoopOperand operand_of(const bp_tensor& tensor) {
  return {data<std::byte>(tensor), tensor.strides, dtype_size_bytes(tensor.dtype)};
}

// The operands of a loop, in order.
struct Operands {
  void add(const LoopOperand& operand) { list[count++] = operand; }
  void add(const bp_tensor* tensor) {
    if (tensor != nullptr) add(operand_of(*tensor));
  }
  Loop loop(const LossCall& call) const {
    return make_loop(call.x.ndim, call.x.shape, std::span(list).first(count), width_bits(call));
  }

  std::array<LoopOperand, kMaxOperands> list{};
  size_t count = 0;
};

// Adds x, target, and what the loss has beside them but the weight.
void add_inputs(Operands& operands, const LossCall& call) {
  operands.add(&call.x);
  operands.add(&call.target);
  if (call.has_width) operands.add({nullptr, nullptr, call.x.dtype == BP_F64 ? 8 : 4});
  operands.add(call.pos_weight);
}

bp_status launch_each(const LossCall& call, const LossRows& rows, Launch& launch) {
  Operands operands;
  operands.add(&call.y);
  add_inputs(operands, call);
  operands.add(call.weight);
  return submit_rows(launch, operands.loop(call), rows.each, call.grain());
}

// The losses lie in the workspace in row-major order.
bp_status launch_weighed(const LossCall& call, const LossRows& rows, Launch& launch) {
  const View losses = dense_view(view_of(call.x), launch.workspace());
  const int64_t size_bytes = call.x.dtype == BP_F64 ? 8 : 4;
  const LoopOperand wide{losses.address, losses.strides, size_bytes};
  Operands first, second;
  first.add(wide);
  add_inputs(first, call);
  second.add(&call.y);
  second.add(wide);
  second.add(call.weight);
  return launch.submit([computes = first.loop(call), weighs = second.loop(call), rows,
                        threads = launch.thread_count()] {
    run_rows(computes, rows.each, threads, kMathGrain, {});
    run_rows(weighs, rows.weigh, threads, kGrain, {});
  });
}

bp_status launch_total(const LossCall& call, const LossRows& rows, Launch& launch) {
  Operands operands;
  add_inputs(operands, call);
  operands.add(call.weight);
  const Loop loop = operands.loop(call);
  const bool is_mean = call.reduction == BP_NLL_LOSS_REDUCTION_MEAN;
  return launch.submit([loop, row = rows.sum, is_mean, grain = call.grain(), dtype = call.x.dtype,
                        y = data<std::byte>(call.y), sums = launch.workspace<double>(),
                        threads = launch.thread_count()] {
    sum_blocks(loop, row, sums, threads, grain);
    double total = 0;
    for (int64_t i = 0; i < loop_block_count(loop.count); ++i) total += sums[i];
    if (is_mean) total /= static_cast<double>(loop.count);
    with_float(dtype, [&]<typename T>(T) { *reinterpret_cast<T*>(y) = narrow<T>(total); });
  });
}

template <typename Args, uint32_t kOp>
bp_status loss_launch(const Args& args, Launch& launch) {
  if (const bp_reason reason = unknown_reduction(args.reduction)) {
    return launch.refuse(BP_UNSUPPORTED, refusal_text(op_name(kOp), reason));
  }
  const LossCall call = call_of<kOp>(args);
  const LossRows rows = HWY_DYNAMIC_DISPATCH(find_loss_rows)(
      kOp, call.x.dtype, call.pos_weight != nullptr, call.weight != nullptr);
  if (!call.is_none()) return launch_total(call, rows, launch);
  if (call.is_weighed_later()) return launch_weighed(call, rows, launch);
  return launch_each(call, rows, launch);
}

template <typename Args, uint32_t kOp>
uint64_t loss_workspace(const Args& args, const Env&) {
  const LossCall call = call_of<kOp>(args);
  const auto count = static_cast<uint64_t>(element_count(call.x));
  if (call.is_weighed_later()) return count * (call.x.dtype == BP_F64 ? 8 : 4);
  if (call.is_none()) return 0;
  return static_cast<uint64_t>(loop_block_count(element_count(call.x))) * sizeof(double);
}

template <typename Args>
bp_reason loss_supports(const Args& args) {
  return unknown_reduction(args.reduction);
}

template <typename Args, uint32_t kOp>
constexpr bp_kernel loss_kernel(const char* name) {
  return make_kernel<Args, loss_launch<Args, kOp>, loss_supports<Args>, loss_workspace<Args, kOp>>(
      kernel_row_of_any_shape(name, kOp, kFloatDtypes));
}

}  // namespace

extern constinit const bp_kernel kMseLoss =
    loss_kernel<bp_mse_loss_args, BP_OP_MSE_LOSS>("mse_loss");
extern constinit const bp_kernel kL1Loss = loss_kernel<bp_l1_loss_args, BP_OP_L1_LOSS>("l1_loss");
extern constinit const bp_kernel kSmoothL1Loss =
    loss_kernel<bp_smooth_l1_loss_args, BP_OP_SMOOTH_L1_LOSS>("smooth_l1_loss");
extern constinit const bp_kernel kHuberLoss =
    loss_kernel<bp_huber_loss_args, BP_OP_HUBER_LOSS>("huber_loss");
extern constinit const bp_kernel kBceWithLogitsLoss =
    loss_kernel<bp_bce_with_logits_loss_args, BP_OP_BCE_WITH_LOGITS_LOSS>("bce_with_logits_loss");
extern constinit const bp_kernel kKlDivLoss =
    loss_kernel<bp_kl_div_loss_args, BP_OP_KL_DIV_LOSS>("kl_div_loss");

}  // namespace bp::kernels
#endif  // HWY_ONCE
