// logcumsumexp, for tensors of every layout. running.hpp says how lines are walked.
//
// The sum of exp(x) so far is kept in f64, over exp(largest), where `largest` is the largest
// element so far. A new largest element scales the sum by exp(old - new). So a step takes two
// exponentials and a logarithm, which are computed for many elements at once: neighbouring lines
// take a step side by side, and along a single line only the largest elements and the sums wait for
// each other.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/logcumsumexp.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <limits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/running.hpp"
#include "backends/host_kernels/wide_sums-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kBlock = 256;  // The elements that are taken together.
static_assert(kBlock >= kMostLines);

// Elements of one line, or of one step. Vectors read and write beyond the last of them.
using Block = std::array<double, kBlock + 16>;

template <typename T>
void load_block(const std::byte* x, int64_t stride, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<double>(widen(*reinterpret_cast<const T*>(x + i * stride)));
  }
}

template <typename T>
void store_block(const double* from, std::byte* y, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) store_wide<T>(from[i], y + i * stride);
}

// Returns exp(less - more). It is 1 for equal numbers, also for infinite ones.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ratio_of_exponentials(D d, V less, V more) {
  const V power = exp_of_negative(d, hn::Sub(less, more));
  return hn::IfThenElse(hn::Eq(less, more), hn::Set(d, 1.0), power);
}

// What is known of n lines before a step, or of the steps of one line.
struct Sums {
  Block largest, total;
};

// Takes the elements `x` of n lines, and replaces them by the results.
void take_step(Block& x, int64_t n, Sums& sums) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto element = hn::LoadU(d, x.data() + i), before = hn::LoadU(d, sums.largest.data() + i);
    // A NaN is not equal to itself, and nothing is larger than one.
    const auto is_new = hn::Or(hn::Gt(element, before), hn::IsNaN(element));
    const auto largest = hn::IfThenElse(is_new, element, before);
    const auto total =
        hn::MulAdd(hn::LoadU(d, sums.total.data() + i), ratio_of_exponentials(d, before, largest),
                   ratio_of_exponentials(d, element, largest));
    hn::StoreU(largest, d, sums.largest.data() + i);
    hn::StoreU(total, d, sums.total.data() + i);
    hn::StoreU(hn::Add(largest, log(d, total)), d, x.data() + i);
  }
}

// What is known of one line before a block of its steps.
struct Line {
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
};

// Takes n steps of a line, and replaces its elements `x` by the results.
void take_block(Block& x, int64_t n, Line& line, Sums& sums) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Block before;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    before[at] = line.largest;
    if (x[at] > line.largest || x[at] != x[at]) line.largest = x[at];
    sums.largest[at] = line.largest;
  }
  for (int64_t i = 0; i < n; i += lanes) {
    const auto largest = hn::LoadU(d, sums.largest.data() + i);
    const auto element = hn::LoadU(d, x.data() + i), old = hn::LoadU(d, before.data() + i);
    hn::StoreU(ratio_of_exponentials(d, old, largest), d, before.data() + i);
    hn::StoreU(ratio_of_exponentials(d, element, largest), d, x.data() + i);
  }
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    sums.total[at] = line.total = line.total * before[at] + x[at];
  }
  for (int64_t i = 0; i < n; i += lanes) {
    const auto total = hn::LoadU(d, sums.total.data() + i);
    hn::StoreU(hn::Add(hn::LoadU(d, sums.largest.data() + i), log(d, total)), d, x.data() + i);
  }
}

template <typename T>
void run_line(const RunningPlan& plan, const std::byte* x, std::byte* y, Block& block, Sums& sums) {
  Line line;
  for (int64_t first = 0; first < plan.extent; first += kBlock) {
    const int64_t n = std::min(kBlock, plan.extent - first);
    load_block<T>(x + first * plan.x.stride, plan.x.stride, n, block.data());
    take_block(block, n, line, sums);
    store_block<T>(block.data(), y + first * plan.y.stride, plan.y.stride, n);
  }
}

template <typename T>
void run_group(const RunningPlan& plan, const std::byte* x, std::byte* y, int64_t n, Block& block,
               Sums& sums) {
  const int64_t x_line = plan.x.line_stride(plan.lines), y_line = plan.y.line_stride(plan.lines);
  sums.largest.fill(-std::numeric_limits<double>::infinity());
  sums.total.fill(0);
  for (int64_t step = 0; step < plan.extent; ++step) {
    load_block<T>(x + step * plan.x.stride, x_line, n, block.data());
    take_step(block, n, sums);
    store_block<T>(block.data(), y + step * plan.y.stride, y_line, n);
  }
}

template <typename T>
void run_groups(const RunningPlan& plan, int64_t begin, int64_t end) {
  Block block{};
  Sums sums{};
  for_each_group(plan, begin, end, [&](const std::byte* x, std::byte* y, std::byte*, int64_t n) {
    n == 1 ? run_line<T>(plan, x, y, block, sums) : run_group<T>(plan, x, y, n, block, sums);
  });
}

RunGroups* find_groups(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) -> RunGroups* { return run_groups<T>; });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_groups);

bp_status logcumsumexp_launch(const bp_logcumsumexp_args& args, Launch& launch) {
  RunningPlan plan = running_plan(args, nullptr);
  if (args.is_reverse != 0 && plan.extent > 0) {
    for (LineOperand* operand : {&plan.x, &plan.y}) {
      if (operand->address != nullptr) operand->address += (plan.extent - 1) * operand->stride;
      operand->stride = -operand->stride;
    }
  }
  return submit_running(plan, HWY_DYNAMIC_DISPATCH(find_groups)(args.x->dtype), kMathGrain, launch);
}

}  // namespace

extern constinit const bp_kernel kLogcumsumexp =
    make_kernel<bp_logcumsumexp_args, logcumsumexp_launch>(
        kernel_row("logcumsumexp", BP_OP_LOGCUMSUMEXP, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
