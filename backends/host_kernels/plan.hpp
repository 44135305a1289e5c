// Plans as kernels write them, and the adapter to the C functions of bp_kernel.
//
// A plan is a class with
//   Planned(const Args&, uint64_t constant_args, const Env&)   chooses and allocates; refuses a
//   frame
//                                       for which it is of no use: StatusError of BP_UNSUPPORTED
//   uint64_t packed_size_bytes() const, workspace_size_bytes() const
//   const char* algorithm() const
//   bp_status pack(const Args&, const Launch&, std::byte* packed) const     submits the packing
//   bp_status launch(const Args&, const Launch&, std::byte* packed) const   submits the work
// Tasks hold what they need of it by value: the plan may be released before they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "kernel_env.hpp"

namespace bp::kernels {

constexpr bp_launch_flags kKnownLaunchFlags =
    BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32 | BP_LAUNCH_DEVICE_CURRENT;

// The bp_plan of a kernel. Names its kernel, so that the plan of another is refused.
template <typename Planned>
struct OwnedPlan {
  const bp_kernel* kernel;
  Planned planned;
  bp_buffer_ref packed{};  // Since it was packed.
};

// For the constructor of a plan.
[[noreturn]] inline void refuse_plan(const char* why) {
  throw StatusError(BP_UNSUPPORTED, std::string("no plan is of use: ") + why);
}

template <typename Planned>
OwnedPlan<Planned>* owned(const bp_plan* plan) {
  return reinterpret_cast<OwnedPlan<Planned>*>(const_cast<bp_plan*>(plan));
}

template <typename Args, typename Planned>
bp_status launch_planned(const bp_kernel& kernel, const Args& args, Launch& launch) {
  if constexpr (!std::is_void_v<Planned>) {
    const auto* const plan = owned<Planned>(launch.plan());
    if (plan->kernel == &kernel) {
      if (plan->packed.buffer == nullptr && plan->planned.packed_size_bytes() != 0) {
        return launch.refuse(BP_INVALID_ARGUMENT,
                             std::string(kernel.name) + ": the plan was not packed");
      }
      return plan->planned.launch(args, launch, launch.packed(plan->packed));
    }
  }
  return launch.refuse(BP_INVALID_ARGUMENT,
                       std::string(kernel.name) + ": the plan is not one of this kernel");
}

template <typename Args, typename Planned>
bp_status prepare_plan(const bp_kernel* self, const bp_prepare_desc* desc, const void* args,
                       bp_plan** out_plan) {
  return with_env(self, [&](const Env& env) -> bp_status {
    constexpr uint32_t kFirst = offsetof(bp_prepare_desc, constant_args) + sizeof(uint64_t);
    if (args == nullptr || out_plan == nullptr) {
      throw StatusError(BP_INVALID_ARGUMENT, "prepare: args or out_plan is NULL");
    }
    const bp_prepare_desc ours = read_desc(desc, kFirst, BP_STRUCT_PREPARE_DESC, "prepare");
    if ((ours.flags & ~kKnownLaunchFlags) != 0) {
      throw StatusError(BP_UNSUPPORTED, "prepare: a launch flag is not known");
    }
    const Args& a = *static_cast<const Args*>(args);
    if (a.flags != 0) throw StatusError(BP_UNSUPPORTED, "prepare: a flag of args is not known");
    std::unique_ptr<OwnedPlan<Planned>> plan(
        new OwnedPlan<Planned>{self, Planned(a, ours.constant_args, env)});
    *out_plan = reinterpret_cast<bp_plan*>(plan.release());
    return BP_OK;
  });
}

template <typename Planned>
bp_status write_plan_info(const bp_kernel* self, const bp_plan* plan, bp_plan_info* out_info) {
  return with_env(self, [&](const Env&) -> bp_status {
    constexpr uint32_t kFirst = offsetof(bp_plan_info, algorithm) + sizeof(void*);
    if (plan == nullptr || out_info == nullptr) {
      throw StatusError(BP_INVALID_ARGUMENT, "plan_info: plan or out_info is NULL");
    }
    if (out_info->struct_size < kFirst) {
      throw StatusError(BP_INCOMPATIBLE,
                        "plan_info: out_info is shorter than in its first release");
    }
    const Planned& planned = owned<Planned>(plan)->planned;
    out_info->packed_size_bytes = planned.packed_size_bytes();
    out_info->workspace_required_bytes = planned.workspace_size_bytes();
    out_info->workspace_preferred_bytes = planned.workspace_size_bytes();
    out_info->algorithm = planned.algorithm();
    return BP_OK;
  });
}

template <typename Args, typename Planned>
bp_status pack_plan(const bp_kernel* self, const bp_launch* launch, const void* args,
                    const bp_buffer_ref* packed) {
  return with_launch(self, launch, args, [&](Launch& context) -> bp_status {
    if (context.only_checks()) {
      return context.refuse(BP_INVALID_ARGUMENT, "plan_pack: the stream captures");
    }
    auto* const plan = owned<Planned>(context.plan());
    if (plan == nullptr || plan->kernel != self) {
      return context.refuse(BP_INVALID_ARGUMENT, "plan_pack: the plan is not one of this kernel");
    }
    const uint64_t size_bytes = plan->planned.packed_size_bytes();
    if (packed == nullptr || packed->buffer == nullptr || packed->size_bytes < size_bytes) {
      return context.refuse(BP_INVALID_ARGUMENT, "plan_pack: packed has to have " +
                                                     std::to_string(size_bytes) + " bytes");
    }
    plan->packed = *packed;
    return plan->planned.pack(*static_cast<const Args*>(args), context, context.packed(*packed));
  });
}

template <typename Args, typename Planned>
constexpr void set_plan_functions(bp_kernel& row) {
  row.prepare = [](const bp_kernel* self, bp_device*, const bp_prepare_desc* desc, const void* args,
                   bp_plan** out_plan) {
    return prepare_plan<Args, Planned>(self, desc, args, out_plan);
  };
  row.plan_info = [](const bp_kernel* self, const bp_plan* plan, bp_plan_info* out_info) {
    return write_plan_info<Planned>(self, plan, out_info);
  };
  row.plan_pack = [](const bp_kernel* self, const bp_launch* launch, const void* args,
                     const bp_buffer_ref* packed) {
    return pack_plan<Args, Planned>(self, launch, args, packed);
  };
  row.plan_release = [](const bp_kernel*, bp_plan* plan) -> bp_status {
    delete owned<Planned>(plan);
    return BP_OK;
  };
}

}  // namespace bp::kernels
