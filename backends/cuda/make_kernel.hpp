// make_kernel() is the adapter between typed kernels and the rows of the C table.
//
//   bp_status softmax(const bp_softmax_args& a, Launch& launch);
//   const bp_kernel kSoftmax = make_kernel<bp_softmax_args, softmax>(kernel_row(...));
//
// A plan is a class with
//   Planned(const Args&, uint64_t constant_args, const Env&)   chooses; refuses a frame for which
//                                  it is of no use: StatusError of BP_UNSUPPORTED
//   uint64_t packed_size_bytes() const, workspace_size_bytes() const
//   const char* algorithm() const
//   bp_status pack(const Args&, Launch&, std::byte* packed) const     submits the packing
//   bp_status launch(const Args&, Launch&, std::byte* packed) const   submits the work
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "backends/cuda/kernel_env.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/make_kernel.hpp"

namespace bp::cuda {

// The bp_plan of a kernel. Names its kernel, so that the plan of another is refused.
template <typename Planned>
class OwnedPlan : public PlanBase {
 public:
  template <typename Args>
  OwnedPlan(const bp_kernel* its_kernel, const Args& args, uint64_t constant_args, const Env& env)
      : kernel(its_kernel), planned(args, constant_args, env) {}

  const bp_kernel* const kernel;
  const Planned planned;
  bp_buffer_ref packed{};  // Since it was packed.
};

inline PlanBase* plan_base(const bp_plan* plan) {
  return reinterpret_cast<PlanBase*>(const_cast<bp_plan*>(plan));
}

// NULL for the plan of another kernel.
template <typename Planned>
OwnedPlan<Planned>* owned_plan(const bp_kernel& kernel, const bp_plan* plan) {
  auto* const ours = static_cast<OwnedPlan<Planned>*>(plan_base(plan));
  return ours != nullptr && ours->kernel == &kernel ? ours : nullptr;
}

template <typename Args, typename Planned>
bp_status launch_planned(const bp_kernel& kernel, const Args& args, Launch& launch) {
  if constexpr (!std::is_void_v<Planned>) {
    if (const auto* const plan = owned_plan<Planned>(kernel, launch.plan()); plan != nullptr) {
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

// What a launch of a row does.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), typename Planned>
bp_status launch_row(const bp_kernel& kernel, const void* args, Launch& launch) {
  return launch_typed<Args>(kernel, args, launch, [&](const Args& a) {
    if (launch.plan() != nullptr) return launch_planned<Args, Planned>(kernel, a, launch);
    return LaunchOp(a, launch);
  });
}

template <typename Args, typename Planned>
bp_status prepare_plan(const bp_kernel* self, bp_device* device, const bp_prepare_desc* desc,
                       const void* args, bp_plan** out_plan) {
  return Env::with(*self, device, [&](const Env& env) -> bp_status {
    require(args, "prepare: args");
    require(out_plan, "prepare: out_plan");
    const bp_prepare_desc ours =
        read_desc(desc, kFirstSize<bp_prepare_desc>, BP_STRUCT_PREPARE_DESC, "prepare");
    if ((ours.flags & ~kKnownLaunchFlags) != 0) {
      refuse(BP_UNSUPPORTED, "prepare: a launch flag is not known");
    }
    const Args& a = *static_cast<const Args*>(args);
    if (a.flags != 0) refuse(BP_UNSUPPORTED, "prepare: a flag of args is not known");
    PlanBase* const plan = new OwnedPlan<Planned>(self, a, ours.constant_args, env);
    *out_plan = reinterpret_cast<bp_plan*>(plan);
    return BP_OK;
  });
}

template <typename Planned>
bp_status write_plan_info(const bp_kernel* self, const bp_plan* plan, bp_plan_info* out_info) {
  return entry(self->state, [&](const Instance&) -> bp_status {
    const auto* const ours = owned_plan<Planned>(*self, plan);
    if (ours == nullptr) {
      refuse(BP_INVALID_ARGUMENT, "plan_info: the plan is NULL or not one of this kernel");
    }
    check_offer(out_info, kFirstSize<bp_plan_info>, "plan_info: out_info");
    out_info->packed_size_bytes = ours->planned.packed_size_bytes();
    out_info->workspace_required_bytes = ours->planned.workspace_size_bytes();
    out_info->workspace_preferred_bytes = ours->planned.workspace_size_bytes();
    out_info->algorithm = ours->planned.algorithm();
    return BP_OK;
  });
}

template <typename Args, typename Planned>
bp_status pack_row(const bp_kernel& kernel, const void* args, Launch& launch) {
  const auto* const plan = owned_plan<Planned>(kernel, launch.plan());
  return plan->planned.pack(*static_cast<const Args*>(args), launch, launch.packed(plan->packed));
}

template <typename Args, typename Planned>
bp_status pack_plan(const bp_kernel* self, const bp_launch* launch, const void* args,
                    const bp_buffer_ref* packed) {
  return entry(self->state, [&](const Instance&) -> bp_status {
    require(launch, "plan_pack: launch");
    auto* const plan = owned_plan<Planned>(*self, launch->plan);
    if (plan == nullptr) {
      refuse(BP_INVALID_ARGUMENT, "plan_pack: the plan is NULL or not one of this kernel");
    }
    refuse_in_capture(*self, *launch, "plan_pack");
    const uint64_t size_bytes = plan->planned.packed_size_bytes();
    if (packed == nullptr || packed->buffer == nullptr || packed->size_bytes < size_bytes) {
      refuse(BP_INVALID_ARGUMENT,
             "plan_pack: packed has to have " + std::to_string(size_bytes) + " bytes");
    }
    plan->packed = *packed;
    return run_launch(self, launch, args, pack_row<Args, Planned>);
  });
}

template <typename Args, typename Planned>
constexpr void set_plan_functions(bp_kernel& row) {
  row.prepare = prepare_plan<Args, Planned>;
  row.plan_info = write_plan_info<Planned>;
  row.plan_pack = pack_plan<Args, Planned>;
  row.plan_release = [](const bp_kernel*, bp_plan* plan) -> bp_status {
    if (plan != nullptr) plan_base(plan)->release();
    return BP_OK;
  };
}

// Puts typed functions into `row`, which holds the rest.
//   LaunchOp   Reads the frame, and submits the work through its Launch.
//   Planned    What prepare() makes of a frame; void: the kernel has no plans.
//   Supports, Workspace   As typed_kernel() takes them.
template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
          auto Workspace = nullptr, typename Planned = void>
constexpr bp_kernel make_kernel(bp_kernel row) {
  row = typed_kernel<Env, Args, Supports, Workspace>(row);
  row.launch = [](const bp_kernel* self, const bp_launch* launch, const void* args) {
    return run_launch(self, launch, args, launch_row<Args, LaunchOp, Planned>);
  };
  if constexpr (!std::is_void_v<Planned>) set_plan_functions<Args, Planned>(row);
  return row;
}

}  // namespace bp::cuda
