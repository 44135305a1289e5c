// cummax and cummin, for tensors of every layout. running.hpp says how lines are walked.
#include "backends/host_kernels/running.hpp"

#include <array>
#include <type_traits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"

namespace bp::kernels {
namespace {

// Returns a number that is larger for a more extreme element. NaN is beyond every number.
template <typename T, bool kWantsLargest>
BitsOf<T> rank_of(T x) {
  constexpr auto kHighest = static_cast<BitsOf<T>>(~BitsOf<T>{0});
  const BitsOf<T> key = key_of(x);
  if constexpr (kWantsLargest) return key;
  if constexpr (!std::is_integral_v<T>) {
    if (key == kHighest) return key;
  }
  return static_cast<BitsOf<T>>(kHighest - key);
}

template <typename T, bool kWantsLargest>
void run_extremes(const RunningPlan& plan, int64_t begin, int64_t end) {
  struct Best {
    BitsOf<T> rank;
    T value;
    int64_t index;
  };
  const int64_t x_line = plan.x.line_stride(plan.lines), y_line = plan.y.line_stride(plan.lines);
  const int64_t index_line = plan.indices.line_stride(plan.lines);
  std::array<Best, kMostLines> best;
  for_each_group(plan, begin, end,
                 [&](const std::byte* x, std::byte* y, std::byte* indices, int64_t n) {
                   for (int64_t step = 0; step < plan.extent; ++step) {
                     for (int64_t i = 0; i < n; ++i) {
                       Best& own = best[static_cast<size_t>(i)];
                       const T value = *reinterpret_cast<const T*>(x + i * x_line);
                       const BitsOf<T> rank = rank_of<T, kWantsLargest>(value);
                       if (step == 0 || rank >= own.rank) own = {rank, value, step};
                       *reinterpret_cast<T*>(y + i * y_line) = own.value;
                       if (indices != nullptr)
                         store_index(indices + i * index_line, plan.is_i64, own.index);
                     }
                     x += plan.x.stride;
                     y += plan.y.stride;
                     if (indices != nullptr) indices += plan.indices.stride;
                   }
                 });
}

template <bool kWantsLargest>
RunGroups* find_extremes(bp_dtype dtype) {
  return with_number(dtype,
                     []<typename T>(T) -> RunGroups* { return run_extremes<T, kWantsLargest>; });
}

template <typename Args, bool kWantsLargest>
bp_status extreme_launch(const Args& args, Launch& launch) {
  return submit_running(running_plan(args, args.indices),
                        find_extremes<kWantsLargest>(args.x->dtype), kGrain, launch);
}

template <typename Args>
bp_reason extreme_supports(const Args& args) {
  return index_reason(args.indices, axis_extent(*args.x, static_cast<size_t>(args.axis)));
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

template <typename Args, bool kWantsLargest>
constexpr bp_kernel extreme_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, extreme_launch<Args, kWantsLargest>, extreme_supports<Args>>(
      kernel_row(name, op, {kDtypes, 2}));
}

}  // namespace

extern constinit const bp_kernel kCummax =
    extreme_kernel<bp_cummax_args, true>("cummax", BP_OP_CUMMAX);
extern constinit const bp_kernel kCummin =
    extreme_kernel<bp_cummin_args, false>("cummin", BP_OP_CUMMIN);

}  // namespace bp::kernels
