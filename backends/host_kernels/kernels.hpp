// What every kernel file needs: the adapter to the C table, and the list of the rows.
//
// A kernel file has functions over addresses, a launch function that reads the frame and submits a
// task, and one table row per kernel, declared below and listed in backend.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "backends/host_kernels/plan.hpp"
#include "backplane/ops.h"
#include "backplane/shell/shape.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// Adapts typed functions to a row of the C table, and puts them in a kernel that holds the rest.
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

// activation.cpp
extern const bp_kernel kGelu, kGeluBackward;

// movement.cpp
extern const bp_kernel kFill, kCopy, kArange;

// optimizer.cpp, scale_and_check.cpp
extern const bp_kernel kSgdStep, kAdamwStep, kScaleAndCheckFinite;

// random.cpp
extern const bp_kernel kRandomBits, kUniform, kNormal, kDropout, kDropoutBackward;

// reduction.cpp, argmax.cpp
extern const bp_kernel kSum, kMean, kAmax, kArgmax;

// where.cpp
extern const bp_kernel kWhere;

// matmul.cpp, linear.cpp
extern const bp_kernel kMatmul, kLinear;

// convolution.cpp
extern const bp_kernel kConvolution, kConvolutionBackwardInput, kConvolutionBackwardWeight,
    kConvolutionBackwardBias;

// max_pool.cpp, max_pool_backward.cpp, avg_pool.cpp
extern const bp_kernel kMaxPool, kMaxPoolBackward, kAvgPool, kAvgPoolBackward;

// layer_norm.cpp, rms_norm.cpp
extern const bp_kernel kLayerNorm, kLayerNormBackward, kRmsNorm, kRmsNormBackward;

// rope.cpp
extern const bp_kernel kRope, kRopeBackward;

// sdpa.cpp
extern const bp_kernel kSdpa, kSdpaBackward;

// softmax.cpp, log_softmax.cpp, softmax_backward.cpp
extern const bp_kernel kSoftmax, kLogSoftmax, kSoftmaxBackward, kLogSoftmaxBackward;

// cross_entropy.cpp
extern const bp_kernel kCrossEntropy, kCrossEntropyBackward;

// gather.cpp, embedding.cpp
extern const bp_kernel kGather, kIndexSelect, kEmbedding, kEmbeddingBackward;

// cat.cpp, scatter.cpp, sort.cpp
extern const bp_kernel kCat, kScatter, kScatterReduce, kSort, kTopk;

}  // namespace bp::kernels
