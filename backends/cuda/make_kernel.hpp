// make_kernel() is the adapter between typed kernels and the rows of the C table.
//
//   bp_status softmax(const bp_softmax_args& a, Launch& launch);
//   const bp_kernel kSoftmax = make_kernel<bp_softmax_args, softmax>(kernel_row(...));
#pragma once

#include "backends/cuda/kernel_env.hpp"
#include "backplane/shell/plan.hpp"

namespace bp::cuda {

// How kernels are launched, for plan.hpp of the shell.
struct Launcher {
  using Env = cuda::Env;
  using Launch = cuda::Launch;

  static const bp_host& host_of(const bp_kernel& kernel);
  static const bp_device_ops& devices_of(const bp_kernel& kernel);
  static bool is_capturing(const bp_kernel& kernel, const bp_launch& launch);

  template <auto kBody>
  static bp_status run(const bp_kernel* kernel, const bp_launch* launch, const void* args) {
    return run_launch(kernel, launch, args, kBody);
  }
};

// Puts typed functions into `row`, which has all other members.
//   LaunchOp   Reads the frame, and submits the work through its Launch.
//   Planned, Supports, Workspace   As planned_kernel() takes them.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr, typename Planned = void>
constexpr bp_kernel make_kernel(bp_kernel row) {
  const bp_kernel whole =
      planned_kernel<Launcher, Args, LaunchOp, Supports, Workspace, Planned>(row);
  // When hipcc compiles for a device, it puts constants there too. Such a row has no functions,
  // because those of the host are not there. They are named above all the same, because the
  // compiler finds the kernels through them.
  return BP_IS_HIP && BP_IS_DEVICE_CODE ? row : whole;
}

}  // namespace bp::cuda
