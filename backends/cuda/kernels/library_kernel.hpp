// Kernels that use NVIDIA's libraries. Whether such a kernel takes a call depends on what the
// library offers for the shape on this device. A plan keeps the choice.
//
// Such a kernel is a class with
//   static bp_reason supports(const Args&, bp_launch_flags, const Env&)
//   static uint64_t workspace(const Args&, const Env&)
//   static bp_status launch(const Args&, Launch&)
//   class Plan, derived from LibraryPlan, with
//     Plan(const Args&, const Env&)                   chooses, also for tensors without a buffer
//     const char* algorithm() const
//     bp_status launch(const Args&, Launch&) const
// The device's context is current in each of these functions.
#pragma once

#include "backends/cuda/engines.hpp"
#include "backends/cuda/make_kernel.hpp"

namespace bp::cuda {

// Rounds the size of a part of a workspace, so that the next part is aligned as allocations are.
constexpr uint64_t rounded_part(uint64_t size_bytes) { return (size_bytes + 255) / 256 * 256; }

class LibraryPlan {
 public:
  uint64_t workspace_size_bytes() const { return workspace_size_bytes_; }

 protected:
  uint64_t workspace_size_bytes_ = 0;
};

// A plan as rows of the table have it. It has nothing to pack.
template <typename Args, class Kernel>
class PlannedLibrary {
 public:
  PlannedLibrary(const Args& args, const PlanRequest&, const Env& env) : plan_(make(args, env)) {}

  uint64_t workspace_size_bytes() const { return plan_.workspace_size_bytes(); }
  const char* algorithm() const { return plan_.algorithm(); }
  bp_status launch(const Args& args, Launch& launch) const { return plan_.launch(args, launch); }

 private:
  static typename Kernel::Plan make(const Args& args, const Env& env) {
    const Current current(env.device());
    return typename Kernel::Plan(args, env);
  }
  const typename Kernel::Plan plan_;
};

template <typename Args, class Kernel>
bp_reason library_supports(const bp_kernel* self, bp_device* handle, bp_launch_flags flags,
                           const void* args) noexcept {
  if ((flags & ~kKnownLaunchFlags) != 0) return "a launch flag is not known";
  Instance& i = instance(self->state);
  try {
    Device& device = device_of(i, handle, self->name);
    const Current current(device);
    return Kernel::supports(*static_cast<const Args*>(args), flags, Env(i, device));
  } catch (const std::exception& e) {
    i.host->log_line(i.host->self, BP_LOG_WARNING, e.what());
    return "the library failed when it was asked; the log says how";
  }
}

template <typename Args, class Kernel>
uint64_t library_workspace(const Args& args, const Env& env) {
  const Current current(env.device());
  return Kernel::workspace(args, env);
}

template <typename Args, class Kernel>
constexpr bp_kernel make_library_kernel(const bp_kernel& claims) {
  bp_kernel row = make_kernel<Args, Kernel::launch, nullptr, library_workspace<Args, Kernel>,
                              PlannedLibrary<Args, Kernel>>(claims);
  row.supports = library_supports<Args, Kernel>;
  return row;
}

// Submits a plan of cuDNN. Its workspace is at the beginning of the launch's.
inline bp_status run_dnn(const DnnPlan& plan, std::span<const DnnAddress> addresses,
                         Launch& launch) {
  return launch.call([&]() -> bp_status {
    launch.engines()
        .dnn(launch.device())
        ->run(plan, addresses, launch.workspace(), launch.stream());
    return BP_OK;
  });
}

// The declared numerics of products. Tensor cores truncate sums where f32 arithmetic would round,
// and keep two bits more than f32 meanwhile.
constexpr bp_numerics kTensorCoreNumerics = {
    .struct_size = sizeof(bp_numerics),
    .struct_type = BP_STRUCT_NUMERICS,
    .accumulator_bits = 22,
};
// f16 keeps as many bits as TF32, so factors that are rounded to it make such products too.
constexpr bp_numerics kTf32Numerics = {
    .struct_size = sizeof(bp_numerics),
    .struct_type = BP_STRUCT_NUMERICS,
    .accumulator_bits = 22,
    .products = BP_PRODUCTS_TF32,
};
constexpr bp_numerics kBf16Numerics = {
    .struct_size = sizeof(bp_numerics),
    .struct_type = BP_STRUCT_NUMERICS,
    .accumulator_bits = 22,
    .products = BP_PRODUCTS_BF16,
};

}  // namespace bp::cuda
