// What every kernel file needs: the adapter to the C table, and the declarations of all kernels.
//
// A kernel file has functions over addresses, a launch function that reads the frame and submits a
// task, and one table row per kernel, which a line of kernels.def registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/host_kernels/plan.hpp"
#include "backplane/ops.h"
#include "backplane/shell/make_kernel.hpp"
#include "backplane/shell/shape.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// Adapts typed functions to a row of the C table, which kernel_row() has begun.
//   LaunchOp   Reads the frame, and submits the work with Launch::submit().
//   Planned    What prepare() makes of a frame (plan.hpp); void: the kernel has no plans.
//   Supports, Workspace   As typed_kernel() takes them.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr, typename Planned = void>
constexpr bp_kernel make_kernel(bp_kernel row) {
  row = typed_kernel<Env, Args, Supports, Workspace>(row);
  row.launch = [](const bp_kernel* self, const bp_launch* launch, const void* args) {
    return with_launch(self, launch, args, [&](Launch& context) {
      return launch_typed<Args>(*self, args, context, [&](const Args& a) {
        if (context.plan() != nullptr) return launch_planned<Args, Planned>(*self, a, context);
        return LaunchOp(a, context);
      });
    });
  };
  if constexpr (!std::is_void_v<Planned>) set_plan_functions<Args, Planned>(row);
  return row;
}

#define BP_KERNEL(name) extern const bp_kernel name;
#define BP_LIBRARY_KERNEL(name) extern const bp_kernel name;
#include "backends/host_kernels/kernels.def"
#undef BP_KERNEL
#undef BP_LIBRARY_KERNEL

}  // namespace bp::kernels
