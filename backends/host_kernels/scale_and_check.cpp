// scale_and_check_finite and foreach_scale over a list of tensors, for every layout. They make one
// pass, in place.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/scale_and_check.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/host_kernels/lanes-inl.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/scalar.hpp"

#ifndef BACKPLANE_CPU_SCALE_AND_CHECK
#define BACKPLANE_CPU_SCALE_AND_CHECK
namespace bp::kernels {
namespace {

struct ScaleAndCheck {
  double scale = 0;
  std::atomic<bool>* found = nullptr;  // Set if an element is not finite. NULL if nothing checks.
};

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Scales elements and, if kChecks, checks the stored values, because a 16-bit float may overflow
// when the product in f32 does not.
template <typename T, bool kChecks>
void scale_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  using C = Compute<T>;
  const auto& options = *static_cast<const ScaleAndCheck*>(context);
  const auto scale = static_cast<C>(options.scale);
  bool is_found = false;
  int64_t i = 0;
  if (strides[0] == sizeof(T)) {
    const ComputeTag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto factor = hn::Set(d, scale), most = hn::Set(d, std::numeric_limits<C>::max());
    T* const x = reinterpret_cast<T*>(data[0]);
    for (; i + lanes <= n; i += lanes) {
      const auto before = load_lanes(d, x + i);
      store_lanes(hn::Mul(before, factor), d, x + i);
      if constexpr (!kChecks) continue;
      const auto after = load_lanes(d, x + i);
      const auto is_finite = hn::And(hn::Le(hn::Abs(before), most), hn::Le(hn::Abs(after), most));
      is_found = is_found || !hn::AllTrue(d, is_finite);
    }
  }
  for (; i < n; ++i) {
    T& x = *reinterpret_cast<T*>(data[0] + i * strides[0]);
    const C before = widen(x);
    x = narrow<T>(before * scale);
    is_found = is_found || !std::isfinite(before) || !std::isfinite(widen(x));
  }
  if (kChecks && is_found) options.found->store(true, std::memory_order_relaxed);
}

RowFunction* find_scale_row(bp_dtype dtype, bool checks) {
  return with_float(dtype, [=]<typename T>(T) -> RowFunction* {
    return checks ? scale_row<T, true> : scale_row<T, false>;
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_scale_row);

// One loop and its row function. The tensors of a list may have different dtypes, so each loop has
// its own row function.
struct ScaleStep {
  Loop loop;
  RowFunction* row;
};

template <typename Args>
std::vector<ScaleStep> steps_of(const Args& args, bool checks) {
  std::vector<ScaleStep> steps;
  steps.reserve(args.xs_count);
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    steps.push_back(
        {make_loop({args.xs[i]}), HWY_DYNAMIC_DISPATCH(find_scale_row)(args.xs[i]->dtype, checks)});
  }
  return steps;
}

bp_status foreach_launch(const bp_foreach_scale_args& args, Launch& launch) {
  const RateArgument scale(args.scale, args.scale_scalar);
  return launch.submit([scale, steps = steps_of(args, false), threads = launch.thread_count()] {
    const ScaleAndCheck options = {scale.get(), nullptr};
    for (const ScaleStep& step : steps) run_loop(step.loop, step.row, threads, kGrain, &options);
  });
}

bp_status check_launch(const bp_scale_and_check_finite_args& args, Launch& launch) {
  const RateArgument scale(args.scale, args.scale_scalar);
  return launch.submit([scale, steps = steps_of(args, true), found = data<float>(*args.found),
                        threads = launch.thread_count()] {
    std::atomic<bool> is_found = false;
    const ScaleAndCheck options = {scale.get(), &is_found};
    for (const ScaleStep& step : steps) run_loop(step.loop, step.row, threads, kGrain, &options);
    if (is_found) *found = 1;
  });
}

constexpr bp_kernel_flags kScaleFlags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR;

}  // namespace

extern constinit const bp_kernel kForeachScale = make_kernel<bp_foreach_scale_args, foreach_launch>(
    kernel_row("foreach_scale", BP_OP_FOREACH_SCALE, {kStepDtypes, 2}, kScaleFlags));
extern constinit const bp_kernel kScaleAndCheckFinite =
    make_kernel<bp_scale_and_check_finite_args, check_launch>(kernel_row(
        "scale_and_check_finite", BP_OP_SCALE_AND_CHECK_FINITE, {kStepDtypes, 2}, kScaleFlags));

}  // namespace bp::kernels
#endif  // HWY_ONCE
