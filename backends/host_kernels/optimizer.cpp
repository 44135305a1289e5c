// sgd_step, adam_step, adamw_step and lion_step over lists of parameters, for tensors of every
// layout.
//
// A step is one pass over memory. For each parameter it reads the gradient and the state once, and
// writes the parameter and the state once.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/optimizer.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <cmath>
#include <string>
#include <vector>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/lanes-inl.hpp"
#include "backends/host_kernels/optimizer.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// The elements of a row. The compiler sees dense elements as arrays.
template <typename T, bool kIsDense>
HWY_INLINE T& element(std::byte* data, int64_t stride, int64_t i) {
  if constexpr (kIsDense) return reinterpret_cast<T*>(data)[i];
  return *reinterpret_cast<T*>(data + i * stride);
}

// data and strides are those of (parameter, gradient, momentum buffer).
template <typename T, bool kIsDense, bool kHasBuffer>
void sgd_elements(std::byte* const* data, const int64_t* strides, int64_t n, const SgdSettings& s) {
  const auto lr = static_cast<T>(s.lr), weight_decay = static_cast<T>(s.weight_decay);
  const auto momentum = static_cast<T>(s.momentum), share = static_cast<T>(1.0 - s.dampening);
  std::byte *const p = data[0], *const g = data[1], *const m = data[2];
  for (int64_t i = 0; i < n; ++i) {
    T& param = element<T, kIsDense>(p, strides[0], i);
    T step = element<T, kIsDense>(g, strides[1], i) + weight_decay * param;
    if constexpr (kHasBuffer) {
      T& buffer = element<T, kIsDense>(m, strides[2], i);
      const T decayed = momentum * buffer + share * step;
      const T moved = s.is_first ? step : decayed;
      buffer = moved;
      step = s.nesterov ? step + momentum * moved : moved;
    }
    param -= lr * step;
  }
}

template <typename T>
void sgd_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const SgdSettings& s = *static_cast<const SgdSettings*>(context);
  constexpr int64_t kDense = sizeof(T);
  const bool is_dense = strides[0] == kDense && strides[1] == kDense;
  if (!s.has_buffers) {
    return is_dense ? sgd_elements<T, true, false>(data, strides, n, s)
                    : sgd_elements<T, false, false>(data, strides, n, s);
  }
  return is_dense && strides[2] == kDense ? sgd_elements<T, true, true>(data, strides, n, s)
                                          : sgd_elements<T, false, true>(data, strides, n, s);
}

// Returns whether the first kCount operands are dense.
template <typename T, int kCount>
bool are_dense(const int64_t* strides) {
  bool result = true;
  for (int k = 0; k < kCount; ++k) result = result && strides[k] == int64_t{sizeof(T)};
  return result;
}

// data and strides are those of (parameter, gradient, exp_avg, exp_avg_sq). If weight decay is
// decoupled, it acts on the parameter, else it is a part of the gradient.
template <typename T, bool kIsDense, bool kIsDecoupled>
void adam_elements(std::byte* const* data, const int64_t* strides, int64_t n,
                   const AdamSettings& s) {
  const auto decay = static_cast<T>(kIsDecoupled ? s.lr * s.weight_decay : s.weight_decay);
  const auto beta1 = static_cast<T>(s.beta1), share1 = static_cast<T>(1.0 - s.beta1);
  const auto beta2 = static_cast<T>(s.beta2), share2 = static_cast<T>(1.0 - s.beta2);
  const auto lr = static_cast<T>(s.lr / s.correction1), eps = static_cast<T>(s.eps);
  const auto root_scale = static_cast<T>(1.0 / std::sqrt(s.correction2));
  for (int64_t i = 0; i < n; ++i) {
    T& param = element<T, kIsDense>(data[0], strides[0], i);
    T grad = element<T, kIsDense>(data[1], strides[1], i);
    if constexpr (!kIsDecoupled) grad += decay * param;
    T& average = element<T, kIsDense>(data[2], strides[2], i);
    T& average_of_squares = element<T, kIsDense>(data[3], strides[3], i);
    const T m = beta1 * average + share1 * grad;
    const T v = beta2 * average_of_squares + share2 * grad * grad;
    average = m;
    average_of_squares = v;
    const T kept = kIsDecoupled ? param - decay * param : param;
    param = kept - lr * m / (std::sqrt(v) * root_scale + eps);
  }
}

template <typename T, bool kIsDecoupled>
void adam_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const AdamSettings& s = *static_cast<const AdamSettings*>(context);
  return are_dense<T, 4>(strides) ? adam_elements<T, true, kIsDecoupled>(data, strides, n, s)
                                  : adam_elements<T, false, kIsDecoupled>(data, strides, n, s);
}

// data and strides are those of (parameter, gradient, exp_avg).
template <typename T, bool kIsDense>
void lion_elements(std::byte* const* data, const int64_t* strides, int64_t n,
                   const LionSettings& s) {
  const auto lr = static_cast<T>(s.lr), weight_decay = static_cast<T>(s.weight_decay);
  const auto beta1 = static_cast<T>(s.beta1), share1 = static_cast<T>(1.0 - s.beta1);
  const auto beta2 = static_cast<T>(s.beta2), share2 = static_cast<T>(1.0 - s.beta2);
  for (int64_t i = 0; i < n; ++i) {
    T& param = element<T, kIsDense>(data[0], strides[0], i);
    const T grad = element<T, kIsDense>(data[1], strides[1], i);
    T& average = element<T, kIsDense>(data[2], strides[2], i);
    const T mixed = beta1 * average + share1 * grad;
    const T sign = mixed > 0 ? T{1} : mixed < 0 ? T{-1} : mixed;  // Of 0 it is 0, of NaN NaN.
    param -= lr * (sign + weight_decay * param);
    average = beta2 * average + share2 * grad;
  }
}

template <typename T>
void lion_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const LionSettings& s = *static_cast<const LionSettings*>(context);
  return are_dense<T, 3>(strides) ? lion_elements<T, true>(data, strides, n, s)
                                  : lion_elements<T, false>(data, strides, n, s);
}

// The number of elements that are widened at a time, which stay in the first-level cache.
constexpr int64_t kWideBlock = 512;

template <typename T>
void widen_elements(const std::byte* from, int64_t stride, int64_t n, float* to) {
  int64_t i = 0;
  if (stride == sizeof(T)) {
    const hn::ScalableTag<float> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const T* const x = reinterpret_cast<const T*>(from);
    for (; i + lanes <= n; i += lanes) hn::StoreU(load_lanes(d, x + i), d, to + i);
  }
  for (; i < n; ++i) to[i] = reinterpret_cast<const T*>(from + i * stride)->to_f32();
}

template <typename T>
void narrow_elements(const float* from, std::byte* to, int64_t stride, int64_t n) {
  int64_t i = 0;
  if (stride == sizeof(T)) {
    const hn::ScalableTag<float> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    T* const y = reinterpret_cast<T*>(to);
    for (; i + lanes <= n; i += lanes) store_lanes(hn::LoadU(d, from + i), d, y + i);
  }
  for (; i < n; ++i) *reinterpret_cast<T*>(to + i * stride) = T::from_f32(from[i]);
}

// Runs the step on 16-bit floats. It computes in f32, and rounds the elements that it stores.
// Operand 1, the gradient, is not changed.
template <typename T, RowFunction* kRow, int kCount>
void narrow_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  alignas(64) float wide[kCount][kWideBlock];
  std::byte* addresses[kMaxOperands] = {};
  int64_t wide_strides[kMaxOperands] = {};
  for (int k = 0; k < kCount; ++k) {
    addresses[k] = reinterpret_cast<std::byte*>(wide[k]);
    wide_strides[k] = sizeof(float);
  }
  for (int64_t first = 0; first < n; first += kWideBlock) {
    const int64_t count = std::min(kWideBlock, n - first);
    for (int k = 0; k < kCount; ++k) {
      widen_elements<T>(data[k] + first * strides[k], strides[k], count, wide[k]);
    }
    kRow(addresses, wide_strides, count, context);
    for (int k = 0; k < kCount; ++k) {
      if (k == 1) continue;
      narrow_elements<T>(wide[k], data[k] + first * strides[k], strides[k], count);
    }
  }
}

template <typename T>
void narrow_sgd_row(std::byte* const* data, const int64_t* strides, int64_t n,
                    const void* context) {
  if (static_cast<const SgdSettings*>(context)->has_buffers) {
    narrow_row<T, sgd_row<float>, 3>(data, strides, n, context);
  } else {
    narrow_row<T, sgd_row<float>, 2>(data, strides, n, context);
  }
}

[[noreturn]] void refuse_op(uint32_t op) {
  throw StatusError(BP_INTERNAL, "no optimizer has the op " + std::to_string(op));
}

template <typename T>
RowFunction* wide_row_of(uint32_t op) {
  switch (op) {
    case BP_OP_SGD_STEP:
      return sgd_row<T>;
    case BP_OP_ADAM_STEP:
      return adam_row<T, false>;
    case BP_OP_ADAMW_STEP:
      return adam_row<T, true>;
    case BP_OP_LION_STEP:
      return lion_row<T>;
    default:
      refuse_op(op);
  }
}

template <typename T>
RowFunction* narrow_row_of(uint32_t op) {
  switch (op) {
    case BP_OP_SGD_STEP:
      return narrow_sgd_row<T>;
    case BP_OP_ADAM_STEP:
      return narrow_row<T, adam_row<float, false>, 4>;
    case BP_OP_ADAMW_STEP:
      return narrow_row<T, adam_row<float, true>, 4>;
    case BP_OP_LION_STEP:
      return narrow_row<T, lion_row<float>, 3>;
    default:
      refuse_op(op);
  }
}

RowFunction* optimizer_row(uint32_t op, bp_dtype dtype) {
  return with_float(dtype, [=]<typename T>(T) -> RowFunction* {
    if constexpr (kIsNarrow<T>) {
      return narrow_row_of<T>(op);
    } else {
      return wide_row_of<T>(op);
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

HWY_EXPORT(optimizer_row);

// With fewer elements one thread is faster.
constexpr int64_t kStepGrain = 16384;

// One loop and its row function. The tensors of a list may have different dtypes, so each loop has
// its own row function.
struct Step {
  Loop loop;
  RowFunction* row;
};

bp_status sgd_launch(const bp_sgd_step_args& args, Launch& launch) {
  SgdSettings settings;
  settings.momentum = args.momentum;
  settings.dampening = args.dampening;
  settings.weight_decay = args.weight_decay;
  settings.nesterov = args.nesterov != 0;
  settings.has_buffers = args.momentum_buffers_count > 0;
  const RateArgument lr(args.lr, args.lr_scalar);
  const ScalarArgument step(args.step, args.step_scalar, BP_I64);
  std::vector<Step> steps;
  for (uint64_t i = 0; i < args.params_count; ++i) {
    const bp_tensor* const p = args.params[i];
    const Loop loop = settings.has_buffers ? make_loop({p, args.grads[i], args.momentum_buffers[i]})
                                           : make_loop({p, args.grads[i]});
    steps.push_back({loop, HWY_DYNAMIC_DISPATCH(optimizer_row)(BP_OP_SGD_STEP, p->dtype)});
  }
  return launch.submit(
      [settings, lr, step, steps = std::move(steps), threads = launch.thread_count()] {
        SgdSettings s = settings;
        s.lr = lr.get();
        s.is_first = step.get<int64_t>() == 1;
        for (const Step& each : steps) run_loop(each.loop, each.row, threads, kStepGrain, &s);
      });
}

template <uint32_t kOp, typename Args>
bp_status adam_launch(const Args& args, Launch& launch) {
  AdamSettings settings;
  settings.beta1 = args.beta1;
  settings.beta2 = args.beta2;
  settings.eps = args.eps;
  settings.weight_decay = args.weight_decay;
  const RateArgument lr(args.lr, args.lr_scalar);
  const ScalarArgument step(args.step, args.step_scalar, BP_I64);
  std::vector<Step> steps;
  for (uint64_t i = 0; i < args.params_count; ++i) {
    const bp_tensor* const p = args.params[i];
    steps.push_back({make_loop({p, args.grads[i], args.exp_avg[i], args.exp_avg_sq[i]}),
                     HWY_DYNAMIC_DISPATCH(optimizer_row)(kOp, p->dtype)});
  }
  return launch.submit(
      [settings, lr, step, steps = std::move(steps), threads = launch.thread_count()] {
        AdamSettings s = settings;
        s.lr = lr.get();
        const auto count = static_cast<double>(step.get<int64_t>());
        s.correction1 = 1.0 - std::pow(s.beta1, count);
        s.correction2 = 1.0 - std::pow(s.beta2, count);
        for (const Step& each : steps) run_loop(each.loop, each.row, threads, kStepGrain, &s);
      });
}

bp_status lion_launch(const bp_lion_step_args& args, Launch& launch) {
  const RateArgument lr(args.lr, args.lr_scalar);
  std::vector<Step> steps;
  for (uint64_t i = 0; i < args.params_count; ++i) {
    const bp_tensor* const p = args.params[i];
    steps.push_back({make_loop({p, args.grads[i], args.exp_avg[i]}),
                     HWY_DYNAMIC_DISPATCH(optimizer_row)(BP_OP_LION_STEP, p->dtype)});
  }
  return launch.submit([settings = LionSettings{0, args.beta1, args.beta2, args.weight_decay}, lr,
                        steps = std::move(steps), threads = launch.thread_count()] {
    LionSettings s = settings;
    s.lr = lr.get();
    for (const Step& each : steps) run_loop(each.loop, each.row, threads, kStepGrain, &s);
  });
}

constexpr bp_kernel_flags kStepFlags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR;

}  // namespace

extern constinit const bp_kernel kSgdStep = make_kernel<bp_sgd_step_args, sgd_launch>(
    kernel_row("sgd_step", BP_OP_SGD_STEP, {kStepDtypes, 2}, kStepFlags));
extern constinit const bp_kernel kAdamStep =
    make_kernel<bp_adam_step_args, adam_launch<BP_OP_ADAM_STEP, bp_adam_step_args>>(
        kernel_row("adam_step", BP_OP_ADAM_STEP, {kStepDtypes, 2}, kStepFlags));
extern constinit const bp_kernel kAdamwStep =
    make_kernel<bp_adamw_step_args, adam_launch<BP_OP_ADAMW_STEP, bp_adamw_step_args>>(
        kernel_row("adamw_step", BP_OP_ADAMW_STEP, {kStepDtypes, 2}, kStepFlags));
extern constinit const bp_kernel kLionStep = make_kernel<bp_lion_step_args, lion_launch>(
    kernel_row("lion_step", BP_OP_LION_STEP, {kStepDtypes, 2}, kStepFlags));

}  // namespace bp::kernels
#endif  // HWY_ONCE
