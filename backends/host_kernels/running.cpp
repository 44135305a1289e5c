// cummax, cummin and logcumsumexp, for tensors of every layout. Each step along a line needs the
// one before it, so threads share the lines, and each takes up to 64 neighbouring lines side by
// side if their elements lie closer together than those of a line. The sums of logcumsumexp are
// kept in f64 for every dtype, over the exponential of the largest element so far.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/line_operands.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/records.hpp"

namespace bp::kernels {
namespace {

constexpr int64_t kMostLines = 64;

struct RunningPlan {
  LineOperand x, y, indices;  // No address of indices if not wanted.
  bool is_i64 = true;         // The dtype of the indices.
  LineSpace lines;
  int64_t extent = 0;      // The length of a line.
  int64_t side_lines = 1;  // The lines that lie side by side.
  int64_t group_size = 1;  // The most lines that are taken at once.

  int64_t groups_per_side() const { return (side_lines + group_size - 1) / group_size; }
  int64_t group_count() const {
    return side_lines == 0 ? 0 : lines.count / side_lines * groups_per_side();
  }
};

template <typename Args>
RunningPlan plan_of(const Args& args, const bp_tensor* indices) {
  const auto axis = static_cast<size_t>(args.axis);
  RunningPlan plan{.x = LineOperand(args.x, axis),
                   .y = LineOperand(args.y, axis),
                   .indices = LineOperand(indices, axis),
                   .is_i64 = indices == nullptr || indices->dtype == BP_I64,
                   .lines = LineSpace(*args.x, axis),
                   .extent = axis_extent(*args.x, axis)};
  if (plan.lines.axes > 0) plan.side_lines = plan.lines.extents[plan.lines.axes - 1];
  const bool is_across = std::abs(plan.x.line_stride(plan.lines)) < std::abs(plan.x.stride);
  if (is_across && plan.lines.axes > 0) plan.group_size = kMostLines;
  return plan;
}

// Calls take(x, i, y, indices, step) for the elements of the lines of groups [begin, end): for each
// step along the lines of a group, line i of the group takes it. An address is that of the element.
template <typename Start, typename Take>
void walk_groups(const RunningPlan& p, int64_t begin, int64_t end, const Start& start,
                 const Take& take) {
  const int64_t x_line = p.x.line_stride(p.lines), y_line = p.y.line_stride(p.lines);
  const int64_t index_line = p.indices.line_stride(p.lines);
  for (int64_t group = begin; group < end; ++group) {
    const int64_t first = group % p.groups_per_side() * p.group_size;
    const int64_t number = group / p.groups_per_side() * p.side_lines + first;
    const int64_t n = std::min(p.group_size, p.side_lines - first);
    const std::byte* x = p.x.line(p.lines, number);
    std::byte* y = p.y.line(p.lines, number);
    std::byte* indices = p.indices.line(p.lines, number);
    start(n);
    for (int64_t step = 0; step < p.extent; ++step) {
      for (int64_t i = 0; i < n; ++i) {
        std::byte* const place = indices == nullptr ? nullptr : indices + i * index_line;
        take(x + i * x_line, i, y + i * y_line, place, step);
      }
      x += p.x.stride;
      y += p.y.stride;
      if (indices != nullptr) indices += p.indices.stride;
    }
  }
}

// Walks the lines [begin, end) of a plan in groups.
using RunGroups = void(const RunningPlan& plan, int64_t begin, int64_t end);

// ---- cummax and cummin ----------------------------------------------------------------------- //

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
  std::array<Best, kMostLines> best;
  walk_groups(
      plan, begin, end, [](int64_t) {},
      [&](const std::byte* x, int64_t i, std::byte* y, std::byte* place, int64_t step) {
        Best& own = best[static_cast<size_t>(i)];
        const T value = *reinterpret_cast<const T*>(x);
        const BitsOf<T> rank = rank_of<T, kWantsLargest>(value);
        if (step == 0 || rank >= own.rank) own = {rank, value, step};
        *reinterpret_cast<T*>(y) = own.value;
        if (place != nullptr) store_index(place, plan.is_i64, own.index);
      });
}

template <bool kWantsLargest>
RunGroups* find_extremes(bp_dtype dtype) {
  return with_number(dtype,
                     []<typename T>(T) -> RunGroups* { return run_extremes<T, kWantsLargest>; });
}

// ---- logcumsumexp ---------------------------------------------------------------------------- //

// The sum of exp(x) for the x so far, over exp(largest).
struct Exponentials {
  void take(double x) {
    if (x == largest) {  // It may be infinite.
      total += 1;
    } else if (x < largest) {
      total += std::exp(x - largest);
    } else if (x > largest) {
      total = total * std::exp(largest - x) + 1;
      largest = x;
    } else {
      largest = std::numeric_limits<double>::quiet_NaN();
    }
  }

  double largest = -std::numeric_limits<double>::infinity(), total = 0;
};

template <typename T>
void run_exponentials(const RunningPlan& plan, int64_t begin, int64_t end) {
  std::array<Exponentials, kMostLines> sums;
  walk_groups(
      plan, begin, end, [&](int64_t n) { std::fill_n(sums.begin(), n, Exponentials()); },
      [&](const std::byte* x, int64_t i, std::byte* y, std::byte*, int64_t) {
        Exponentials& sum = sums[static_cast<size_t>(i)];
        sum.take(static_cast<double>(widen(*reinterpret_cast<const T*>(x))));
        *reinterpret_cast<T*>(y) = narrow<T>(sum.largest + std::log(sum.total));
      });
}

RunGroups* find_exponentials(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) -> RunGroups* { return run_exponentials<T>; });
}

// ---- Launches -------------------------------------------------------------------------------- //

bp_status submit_running(const RunningPlan& plan, RunGroups* run, int64_t grain,
                         const Launch& launch) {
  return launch.submit([=, threads = launch.thread_count()] {
    const int64_t of_group = std::max<int64_t>(1, plan.extent * plan.group_size);
    parallel_for(threads, plan.group_count(), std::max<int64_t>(1, grain / of_group),
                 [&](int64_t begin, int64_t end) { run(plan, begin, end); });
  });
}

template <typename Args, bool kWantsLargest>
bp_status extreme_launch(const Args& args, Launch& launch) {
  return submit_running(plan_of(args, args.indices), find_extremes<kWantsLargest>(args.x->dtype),
                        kGrain, launch);
}

template <typename Args>
bp_reason extreme_supports(const Args& args) {
  return index_reason(args.indices, axis_extent(*args.x, static_cast<size_t>(args.axis)));
}

bp_status logcumsumexp_launch(const bp_logcumsumexp_args& args, Launch& launch) {
  RunningPlan plan = plan_of(args, nullptr);
  if (args.is_reverse != 0 && plan.extent > 0) {
    for (LineOperand* operand : {&plan.x, &plan.y}) {
      if (operand->address != nullptr) operand->address += (plan.extent - 1) * operand->stride;
      operand->stride = -operand->stride;
    }
  }
  return submit_running(plan, find_exponentials(args.x->dtype), kMathGrain, launch);
}

constexpr auto kDtypes = with_indices(kNumberDtypes);

template <typename Args, bool kWantsLargest>
constexpr bp_kernel extreme_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, extreme_launch<Args, kWantsLargest>, extreme_supports<Args>>(
      kernel_row(name, op, {kDtypes, 2}));
}

}  // namespace

constinit const bp_kernel kCummax = extreme_kernel<bp_cummax_args, true>("cummax", BP_OP_CUMMAX);
constinit const bp_kernel kCummin = extreme_kernel<bp_cummin_args, false>("cummin", BP_OP_CUMMIN);
constinit const bp_kernel kLogcumsumexp = make_kernel<bp_logcumsumexp_args, logcumsumexp_launch>(
    kernel_row("logcumsumexp", BP_OP_LOGCUMSUMEXP, kFloatDtypes));

}  // namespace bp::kernels
