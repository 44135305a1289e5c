// What every kernel file needs: the adapter to the C table, and the declarations of all kernels.
//
// A kernel file reads frames, puts what a shader needs into a record, and dispatches it. The shader
// has the name of the file, or of the family that serves several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backends/vulkan/kernel_env.hpp"
#include "backplane/ops.h"
#include "backplane/shell/kernel_row.hpp"
#include "backplane/shell/shape.hpp"
#include "shader_modules.hpp"

namespace bp::vulkan {

constexpr bp_launch_flags kKnownLaunchFlags =
    BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32 | BP_LAUNCH_DEVICE_CURRENT;

// What a launch of a row does.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&)>
bp_status launch_row(const void* args, Launch& launch) {
  if ((launch.flags() & ~kKnownLaunchFlags) != 0) {
    return launch.refuse(BP_UNSUPPORTED, "launch: a flag is not known");
  }
  const Args& a = *static_cast<const Args*>(args);
  if (a.flags != 0) return launch.refuse(BP_UNSUPPORTED, "launch: a flag of args is not known");
  return LaunchOp(a, launch);
}

// Adapts typed functions to the C table, and puts them into `row`, which kernel_row() has made.
//   LaunchOp   Reads the frame, and submits the work with Launch::dispatch().
//   Supports   bp_reason(const Args&), what the claims cannot say: NULL, or the reason; with a
//              second argument, const Env&, if it depends on the device; nullptr if they say it
//              all.
//   Workspace  uint64_t(const Args&, const Env&), bytes of scratch memory; nullptr if none is
//   needed.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr>
constexpr bp_kernel make_kernel(bp_kernel row) {
  row.struct_size = sizeof(bp_kernel);
  row.struct_type = BP_STRUCT_KERNEL;
  row.args_size_bytes = sizeof(Args);
  row.op_version = 1;
  row.flags |= BP_KERNEL_CAPTURABLE;
  if constexpr (!std::is_null_pointer_v<decltype(Supports)>) {
    row.supports = [](const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                      const void* args) -> bp_reason {
      if ((flags & ~kKnownLaunchFlags) != 0) return "a launch flag is not known";
      const Args& a = *static_cast<const Args*>(args);
      if constexpr (std::is_invocable_v<decltype(Supports), const Args&, const Env&>) {
        const Device* const known = device_or_null(*self, device);
        if (known == nullptr) return "the device is not one of this backend";
        return Supports(a, Env(*known));
      } else {
        return Supports(a);
      }
    };
  }
  if constexpr (!std::is_null_pointer_v<decltype(Workspace)>) {
    row.workspace_size = [](const bp_kernel* self, bp_device* device, const void* args,
                            uint64_t* out_required, uint64_t* out_preferred) {
      return with_env(self, device, [&](const Env& env) {
        const uint64_t size_bytes = Workspace(*static_cast<const Args*>(args), env);
        if (out_required != nullptr) *out_required = size_bytes;
        if (out_preferred != nullptr) *out_preferred = size_bytes;
        return bp_status{BP_OK};
      });
    };
  }
  row.launch = [](const bp_kernel* self, const bp_launch* launch, const void* args) {
    return run_launch(self, launch, args, launch_row<Args, LaunchOp>);
  };
  row.prepare = [](const bp_kernel* self, bp_device* device, const bp_prepare_desc* desc,
                   const void* args, bp_plan** out_plan) {
    return prepare_plan(self, device, desc, args, out_plan, launch_row<Args, LaunchOp>);
  };
  row.plan_info = write_plan_info;
  row.plan_pack = refuse_packing;
  row.plan_release = release_plan;
  return row;
}

// The integer as wide as an element of `dtype`: the type of what is only moved. Throws StatusError
// of BP_UNSUPPORTED if there is none.
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

// The floats that are computed with in f32.
constexpr bp_dtype kF32Dtypes[] = {BP_F32, BP_F16, BP_BF16};

#define BP_KERNEL(name) extern const bp_kernel name;
#include "backends/vulkan/kernels/kernels.def"
#undef BP_KERNEL
#define BP_REDUCTION(name, Name, id, dtypes) extern const bp_kernel kReduction##Name;
#include "reductions.def"

}  // namespace bp::vulkan
