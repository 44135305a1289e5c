// The header of every kernel file. It has the adapter to the C table, and declares all kernels.
//
// A kernel file reads frames, puts what a shader needs into a record, and dispatches it. The shader
// has the name of the file, or of a family of ops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/vulkan/kernel_env.hpp"
#include "backplane/ops.h"
#include "backplane/shell/make_kernel.hpp"
#include "backplane/shell/shape.hpp"
#include "shader_modules.hpp"

namespace bp::vulkan {

// The body of the launches of a row.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&)>
bp_status launch_row(const bp_kernel& kernel, const void* args, Launch& launch) {
  return launch_typed<Args>(kernel, args, launch,
                            [&](const Args& a) { return LaunchOp(a, launch); });
}

// Adapts typed functions to the C table, and puts them into `row`, which kernel_row() has made.
//   LaunchOp   Reads the frame, and submits the work with Launch::dispatch().
//   Supports, Workspace   As typed_kernel() takes them.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr>
constexpr bp_kernel make_kernel(bp_kernel row) {
  row = typed_kernel<Env, Args, Supports, Workspace>(row);
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
