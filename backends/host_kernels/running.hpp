// How cummax, cummin and logcumsumexp walk their lines. Each step along a line needs the one before
// it, so threads share the lines, and each takes up to 64 neighbouring lines side by side if their
// elements lie closer together than those of a line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "backends/host_kernels/line_operands.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/records.hpp"

namespace bp::kernels {

inline constexpr int64_t kMostLines = 64;  // That are taken at once.

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
RunningPlan running_plan(const Args& args, const bp_tensor* indices) {
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

// Calls run(x, y, indices, n) for each of the groups [begin, end), which has n lines. The addresses
// are those of the first elements of its first line.
template <typename Run>
void for_each_group(const RunningPlan& p, int64_t begin, int64_t end, const Run& run) {
  for (int64_t group = begin; group < end; ++group) {
    const int64_t first = group % p.groups_per_side() * p.group_size;
    const int64_t number = group / p.groups_per_side() * p.side_lines + first;
    const std::byte* const x = p.x.line(p.lines, number);
    run(x, p.y.line(p.lines, number), p.indices.line(p.lines, number),
        std::min(p.group_size, p.side_lines - first));
  }
}

// Walks the lines [begin, end) of a plan in groups.
using RunGroups = void(const RunningPlan& plan, int64_t begin, int64_t end);

// Lets threads run the groups, and gives each at least `grain` elements.
inline bp_status submit_running(const RunningPlan& plan, RunGroups* run, int64_t grain,
                                const Launch& launch) {
  return launch.submit([=, threads = launch.thread_count()] {
    const int64_t of_group = std::max<int64_t>(1, plan.extent * plan.group_size);
    parallel_for(threads, plan.group_count(), std::max<int64_t>(1, grain / of_group),
                 [&](int64_t begin, int64_t end) { run(plan, begin, end); });
  });
}

}  // namespace bp::kernels
