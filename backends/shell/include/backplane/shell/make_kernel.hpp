// The part that the make_kernel() of all backends share: an adapter between C++ functions, which
// take the typed frame of an op, and the C functions of bp_kernel.
//
//   template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
//             auto Workspace = nullptr>
//   constexpr bp_kernel make_kernel(bp_kernel row) {  // kernel_row() made it.
//     row = typed_kernel<Env, Args, Supports, Workspace>(row);
//     row.launch = ...;  // Makes a Launch, and calls launch_typed() with it.
//     return row;
//   }
//
// `Env` is what a kernel knows of its backend, also when nothing is launched. It has two static
// members:
//   with(kernel, device, body)   runs body(const Env&), which returns a status or throws, for a
//                                function of the kernel, and keeps exceptions inside
//   find(kernel, device)         a std::optional<Env>, empty if the device is none of the backend;
//                                only kernels whose Supports takes an Env need it
// A Launch has flags(), and refuse(status, text), which returns the status.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "backplane/shell/args_size.hpp"
#include "backplane/shell/kernel_row.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {

constexpr bp_launch_flags kKnownLaunchFlags =
    BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32 | BP_LAUNCH_DEVICE_CURRENT;

// Refuses a launch of `kernel` in words, and returns `status`.
template <typename Launch>
bp_status refuse_launch(const bp_kernel& kernel, Launch& launch, bp_status status,
                        const char* why) {
  return launch.refuse(status, std::string(kernel.name) + ": " + why);
}

// Runs body(const Args&) for a launch, unless the launch or its frame has a flag that no kernel
// knows.
template <typename Args, typename Launch, typename Body>
bp_status launch_typed(const bp_kernel& kernel, const void* args, Launch& launch, Body&& body) {
  if ((launch.flags() & ~kKnownLaunchFlags) != 0) {
    return refuse_launch(kernel, launch, BP_UNSUPPORTED, "a launch flag is not known");
  }
  const Args& a = *static_cast<const Args*>(args);
  if (a.flags != 0) {
    return refuse_launch(kernel, launch, BP_UNSUPPORTED, "a flag of args is not known");
  }
  return std::forward<Body>(body)(a);
}

// Returns the row with all functions except launch() and the functions of plans.
//   Supports   bp_reason(const Args&), what the claims cannot say: NULL, or the reason; with a
//              second argument, const Env&, if it depends on the device; nullptr if they say all.
//   Workspace  uint64_t(const Args&, const Env&), bytes of scratch memory; nullptr if none is
//              needed.
// The code tests the types of `Supports` and `Workspace` to see whether they are given: under
// sanitizers, g++ does not accept a comparison of a function's address with nullptr as a constant.
template <typename Env, typename Args, auto Supports, auto Workspace>
constexpr bp_kernel typed_kernel(bp_kernel row) {
  row.struct_size = sizeof(bp_kernel);
  row.struct_type = BP_STRUCT_KERNEL;
  row.spec_revision = kSpecRevision;
  row.args_size_bytes = kArgsSize<Args, kSpecRevision>;
  row.flags |= BP_KERNEL_CAPTURABLE;  // A launch reads its frame before it returns.
  if constexpr (!std::is_null_pointer_v<decltype(Supports)>) {
    row.supports = [](const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                      const void* args) -> bp_reason {
      if ((flags & ~kKnownLaunchFlags) != 0) return "a launch flag is not known";
      const Args& a = *static_cast<const Args*>(args);
      try {
        if constexpr (std::is_invocable_v<decltype(Supports), const Args&, const Env&>) {
          const auto env = Env::find(*self, device);
          if (!env.has_value()) return "the device is not one of this backend";
          return Supports(a, *env);
        } else {
          return Supports(a);
        }
      } catch (const TooManyElements&) {
        return "a tensor has more elements than 64 bits can count";
      }
    };
  }
  if constexpr (!std::is_null_pointer_v<decltype(Workspace)>) {
    row.workspace_size = [](const bp_kernel* self, bp_device* device, bp_launch_flags,
                            const void* args, uint64_t* out_required,
                            uint64_t* out_preferred) -> bp_status {
      return Env::with(*self, device, [&](const Env& env) -> bp_status {
        const uint64_t size_bytes = Workspace(*static_cast<const Args*>(args), env);
        if (out_required != nullptr) *out_required = size_bytes;
        if (out_preferred != nullptr) *out_preferred = size_bytes;
        return BP_OK;
      });
    };
  }
  return row;
}

}  // namespace bp
