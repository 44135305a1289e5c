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
#include "backplane/shell/kernel_row.hpp"
#include "backplane/shell/shape.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// Adapts typed functions to a row of the C table, which kernel_row() has begun.
//   LaunchOp   Reads the frame, and submits the work with Launch::submit().
//   Planned    What prepare() makes of a frame (plan.hpp); void: the kernel has no plans.
//   Supports   bp_reason(const Args&), what the claims cannot say: NULL, or the reason; nullptr if
//              they say it all.
//   Workspace  uint64_t(const Args&, const Env&), bytes of scratch memory; nullptr if none is
//              needed.
// Which of the two is given shows in its type: under sanitizers g++ does not take the address of a
// template's function for a constant that differs from nullptr.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr, typename Planned = void>
constexpr bp_kernel make_kernel(bp_kernel row) {
  row.struct_size = sizeof(bp_kernel);
  row.struct_type = BP_STRUCT_KERNEL;
  row.args_size_bytes = sizeof(Args);
  row.op_version = 1;
  row.flags |= BP_KERNEL_CAPTURABLE;  // Launches read frames, and tasks what is in tensors.
  if constexpr (!std::is_null_pointer_v<decltype(Supports)>) {
    row.supports = [](const bp_kernel*, bp_device*, bp_launch_flags flags,
                      const void* args) -> bp_reason {
      if ((flags & ~kKnownLaunchFlags) != 0) return "a launch flag is not known";
      return Supports(*static_cast<const Args*>(args));
    };
  }
  if constexpr (!std::is_null_pointer_v<decltype(Workspace)>) {
    row.workspace_size = [](const bp_kernel* self, bp_device*, const void* args,
                            uint64_t* out_required, uint64_t* out_preferred) {
      return with_env(self, [&](const Env& env) {
        const uint64_t size_bytes = Workspace(*static_cast<const Args*>(args), env);
        if (out_required != nullptr) *out_required = size_bytes;
        if (out_preferred != nullptr) *out_preferred = size_bytes;
        return bp_status{BP_OK};
      });
    };
  }
  row.launch = [](const bp_kernel* self, const bp_launch* launch, const void* args) {
    return with_launch(self, launch, args, [&](Launch& context) {
      if ((context.flags() & ~kKnownLaunchFlags) != 0) {
        return context.refuse(BP_UNSUPPORTED, "launch: a flag is not known");
      }
      const Args& a = *static_cast<const Args*>(args);
      if (a.flags != 0)
        return context.refuse(BP_UNSUPPORTED, "launch: a flag of args is not known");
      if (context.plan() != nullptr) return launch_planned<Args, Planned>(*self, a, context);
      return LaunchOp(a, context);
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
