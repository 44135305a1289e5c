// The header of every kernel file. It has the adapter to the C table, and declares all kernels.
//
// A kernel file reads frames, puts what a shader needs into a record, and dispatches it. The shader
// has the name of the file, or of a family of ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/vulkan/kernel_env.hpp"
#include "backplane/ops.h"
#include "backplane/shell/plan.hpp"
#include "backplane/shell/shape.hpp"
#include "shader_modules.hpp"

namespace bp::vulkan {

// The plan of a kernel that is launched with LaunchOp.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Workspace>
class PlanOf : public Plan {
 public:
  PlanOf(const Args& args, const PlanRequest& request, const Env& env)
      : Plan(request, env, workspace_of(args, env),
             [&args](Launch& launch) { return LaunchOp(args, launch); }) {}

  bp_status launch(const Args& args, Launch& launch) const { return LaunchOp(args, launch); }

 private:
  static uint64_t workspace_of([[maybe_unused]] const Args& args, [[maybe_unused]] const Env& env) {
    if constexpr (std::is_null_pointer_v<decltype(Workspace)>) {
      return 0;
    } else {
      return Workspace(args, env);
    }
  }
};

// Adapts typed functions to the C table, and puts them into `row`, which kernel_row() has made.
//   LaunchOp   Reads the frame, and submits the work with Launch::dispatch().
//   Supports, Workspace   As planned_kernel() takes them.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr>
constexpr bp_kernel make_kernel(bp_kernel row) {
  return planned_kernel<Launcher, Args, LaunchOp, Supports, Workspace,
                        PlanOf<Args, LaunchOp, Workspace>>(row);
}

// Returns the integer dtype as wide as an element of `dtype`, for elements that are only moved.
// Throws StatusError of BP_UNSUPPORTED if there is none.
inline bp_dtype moved_dtype(bp_dtype dtype) {
  switch (dtype_size_bytes(dtype)) {
    case 1:
      return BP_I8;
    case 2:
      return BP_I16;
    case 4:
      return BP_I32;
    case 8:
      return BP_I64;
    default:
      refuse_dtype(dtype);
  }
}

// The float dtypes that are computed in f32.
constexpr bp_dtype kF32Dtypes[] = {BP_F32, BP_F16, BP_BF16};

#define BP_KERNEL(name) extern const bp_kernel name;
#include "backends/vulkan/kernels/kernels.def"
#undef BP_KERNEL
#define BP_REDUCTION(name, Name, id, dtypes) extern const bp_kernel kReduction##Name;
#include "reductions.def"

}  // namespace bp::vulkan
