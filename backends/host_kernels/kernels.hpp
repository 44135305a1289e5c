// The header of every kernel file. It has the adapter to the C table.
//
// A kernel file has functions over addresses, a launch function that reads the frame and submits a
// task, and one table row per kernel, which a line of kernels.def registers. The row is declared
// `extern` where it is defined, so that a new kernel leaves the other files as they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/ops.h"
#include "backplane/shell/plan.hpp"
#include "backplane/shell/shape.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// Adapts typed functions to a row of the C table, which kernel_row() has begun.
//   LaunchOp   Reads the frame, and submits the work with Launch::submit().
//   Planned, Supports, Workspace   As planned_kernel() takes them.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr, typename Planned = void>
constexpr bp_kernel make_kernel(bp_kernel row) {
  return planned_kernel<Launcher, Args, LaunchOp, Supports, Workspace, Planned>(row);
}

}  // namespace bp::kernels
