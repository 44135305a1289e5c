// Kernels with plans: what prepare() makes of a frame, and the C functions of bp_kernel around it.
//
//   template <typename Args, bp_status (*LaunchOp)(const Args&, Launch&), auto Supports = nullptr,
//             auto Workspace = nullptr, typename Planned = void>
//   constexpr bp_kernel make_kernel(bp_kernel row) {  // kernel_row() made it.
//     return planned_kernel<Launcher, Args, LaunchOp, Supports, Workspace, Planned>(row);
//   }
//
// A plan is a class `Planned` with
//   Planned(const Args&, const PlanRequest&, const Env&)   chooses and allocates; refuse_plan() for
//                                       a frame for which it is of no use
//   uint64_t workspace_size_bytes() const
//   const char* algorithm() const
//   bp_status launch(const Args&, Launch&) const       submits the work
// A plan that packs constant arguments has, in place of that launch(),
//   uint64_t packed_size_bytes() const
//   bp_status pack(const Args&, Launch&, std::byte* packed) const     submits the packing
//   bp_status launch(const Args&, Launch&, std::byte* packed) const   submits the work
// What is submitted holds what it needs of the plan by value: the host may release the plan before
// the work runs. A backend that calls launch() later than the host did retains the PlanBase.
//
// A `Launcher` says how a backend launches. LauncherOf has its types and static members, except
// run():
//   Env, Launch                        as in make_kernel.hpp. A Launch also has plan(), what the
//                                      host gave or NULL. Plans that pack need packed(range), the
//                                      address of a range
//   host_of(kernel)                    the host, whose error slot takes the text of a failure
//   is_capturing(kernel, launch)       whether the stream of a launch captures
//   run<kBody>(kernel, launch, args)   runs kBody(kernel, args, Launch&) for a launch that the host
//                                      made, and keeps exceptions inside
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "backplane/shell/captures.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/generation.hpp"
#include "backplane/shell/make_kernel.hpp"

namespace bp {

// The first members of a Launcher, for a kernel whose `state` is an Instance that has `host` and
// `captures`.
template <typename Instance, typename ItsEnv, typename ItsLaunch>
struct LauncherOf {
  using Env = ItsEnv;
  using Launch = ItsLaunch;

  static const bp_host& host_of(const bp_kernel& kernel) {
    return *static_cast<const Instance*>(kernel.state)->host;
  }
  static const bp_device_ops& devices_of(const bp_kernel& kernel) {
    return static_cast<const Instance*>(kernel.state)->devices;
  }
  static bool is_capturing(const bp_kernel& kernel, const bp_launch& launch) {
    return bp::is_capturing(*static_cast<const Instance*>(kernel.state)->captures, launch.stream);
  }
};

// What the host asks of prepare(), besides the frame.
struct PlanRequest {
  const bp_kernel& kernel;
  bp_launch_flags flags;
  std::span<const uint32_t> constant_args;

  // Returns whether the tensor of the frame that has this number keeps its elements.
  bool is_constant(uint32_t number) const {
    return std::ranges::find(constant_args, number) != constant_args.end();
  }
};

// What every plan begins with; a bp_plan is a pointer to one. It is counted, so that a launch that
// runs later than the host called it can keep its plan.
class PlanBase {
 public:
  explicit PlanBase(const bp_kernel& its_kernel) : kernel(&its_kernel) {}
  PlanBase(const PlanBase&) = delete;

  // Says which device the plan is for. A reset of the device loses the plan. `devices` outlives the
  // plan.
  void set_device(const bp_device_ops& devices, bp_device* device) {
    if (devices.reset == nullptr) return;
    devices_ = &devices;
    device_ = device;
    generation_ = generation_of(devices, device);
  }
  bool is_lost() const {
    return devices_ != nullptr && generation_ != generation_of(*devices_, device_);
  }

  virtual ~PlanBase() = default;

  // Fills the members of plan_info().
  virtual void describe(bp_plan_info& info) const = 0;

  void retain() { uses_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (uses_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const bp_kernel* const kernel;  // The plan of another kernel is refused.

 private:
  const bp_device_ops* devices_ = nullptr;  // NULL for a device that is never reset.
  bp_device* device_ = nullptr;
  uint64_t generation_ = 0;
  std::atomic<uint32_t> uses_ = 1;
};

inline PlanBase* plan_base(const bp_plan* plan) {
  return reinterpret_cast<PlanBase*>(const_cast<bp_plan*>(plan));
}

constexpr const char* kLostPlan = "the plan was made before its device was reset";

// Returns the plan of `kernel` for its function `call`. Throws StatusError if it is none, or if it
// is lost.
inline PlanBase& checked_plan(const bp_kernel& kernel, const bp_plan* plan, const char* call) {
  PlanBase* const base = plan_base(plan);
  if (base != nullptr && base->kernel == &kernel) {
    if (base->is_lost()) refuse(BP_DEVICE_LOST, std::string(call) + ": " + kLostPlan);
    return *base;
  }
  refuse(BP_INVALID_ARGUMENT, std::string(call) + ": the plan is NULL or not one of this kernel");
}

template <typename Planned>
class OwnedPlan : public PlanBase {
 public:
  // Says whether the plans may have something to pack.
  static constexpr bool kPacks = requires(const Planned& plan) { plan.packed_size_bytes(); };

  template <typename Args, typename Env>
  OwnedPlan(const Args& args, const PlanRequest& request, const Env& env)
      : PlanBase(request.kernel), planned(args, request, env) {}

  uint64_t packed_size_bytes() const {
    if constexpr (kPacks) {
      return planned.packed_size_bytes();
    } else {
      return 0;
    }
  }
  void describe(bp_plan_info& info) const override {
    info.packed_size_bytes = packed_size_bytes();
    info.workspace_required_bytes = planned.workspace_size_bytes();
    info.workspace_preferred_bytes = planned.workspace_size_bytes();
    info.algorithm = planned.algorithm();
  }

  const Planned planned;
  bp_buffer_ref packed{};  // Set by plan_pack().
};

// For the constructor of a plan.
[[noreturn]] inline void refuse_plan(const char* why) {
  refuse(BP_UNSUPPORTED, std::string("no plan is of use: ") + why);
}

constexpr const char* kForeignPlan = "the plan is not one of this kernel";

// ---- The functions of all plans -----------------------------------------------------------------

// Makes the plan of a frame. Throws StatusError.
template <typename Launcher>
using MakePlan = PlanBase* (*)(const void* args, const PlanRequest& request,
                               const typename Launcher::Env& env);

template <typename Launcher>
bp_status prepare_plan(const bp_kernel* self, bp_device* device, const bp_prepare_desc* desc,
                       const void* args, bp_plan** out_plan, MakePlan<Launcher> make) {
  using Env = typename Launcher::Env;
  return Env::with(*self, device, [&](const Env& env) -> bp_status {
    require(args, "prepare: args");
    require(out_plan, "prepare: out_plan");
    const bp_prepare_desc ours =
        read_desc(desc, kFirstSize<bp_prepare_desc>, BP_STRUCT_PREPARE_DESC, "prepare");
    if ((ours.flags & ~kKnownLaunchFlags) != 0) {
      refuse(BP_UNSUPPORTED, "prepare: a launch flag is not known");
    }
    if (ours.constant_arg_count != 0) require(ours.constant_args, "prepare: constant_args");
    const PlanRequest request{*self, ours.flags, {ours.constant_args, ours.constant_arg_count}};
    PlanBase* const plan = make(args, request, env);
    plan->set_device(Launcher::devices_of(*self), device);
    *out_plan = reinterpret_cast<bp_plan*>(plan);
    return BP_OK;
  });
}

template <typename Launcher>
bp_status write_plan_info(const bp_kernel* self, const bp_plan* plan, bp_plan_info* out_info) {
  return guarded(Launcher::host_of(*self), [&]() -> bp_status {
    const PlanBase& ours = checked_plan(*self, plan, "plan_info");
    check_offer(out_info, kFirstSize<bp_plan_info>, "plan_info: out_info");
    ours.describe(*out_info);
    return BP_OK;
  });
}

// The plan_pack() of plans that have nothing to pack.
template <typename Launcher>
bp_status refuse_packing(const bp_kernel* self, const bp_launch* launch, const void*,
                         const bp_buffer_ref*) {
  return guarded(Launcher::host_of(*self), [&]() -> bp_status {
    require(launch, "plan_pack: launch");
    static_cast<void>(checked_plan(*self, launch->plan, "plan_pack"));
    refuse(BP_INVALID_ARGUMENT, "plan_pack: the plan has nothing to pack");
  });
}

inline bp_status release_plan(const bp_kernel*, bp_plan* plan) {
  if (plan != nullptr) plan_base(plan)->release();
  return BP_OK;
}

// ---- The functions of a kernel whose plans are of the class `Planned` ---------------------------

template <typename Launcher, typename Args, typename Planned>
class PlanFunctions {
 public:
  static constexpr void put(bp_kernel& row) {
    row.prepare = prepare;
    row.plan_info = write_plan_info<Launcher>;
    if constexpr (Owned::kPacks) {
      row.plan_pack = pack;
    } else {
      row.plan_pack = refuse_packing<Launcher>;
    }
    row.plan_release = release_plan;
  }

  // A launch whose host gave a plan.
  static bp_status launch(const bp_kernel& kernel, const Args& args,
                          typename Launcher::Launch& launch) {
    const PlanBase* const base = plan_base(launch.plan());
    if (base->kernel != &kernel) {
      return refuse_launch(kernel, launch, BP_INVALID_ARGUMENT, kForeignPlan);
    }
    if (base->is_lost()) return refuse_launch(kernel, launch, BP_DEVICE_LOST, kLostPlan);
    const auto& plan = static_cast<const Owned&>(*base);
    if constexpr (Owned::kPacks) {
      if (plan.packed.buffer == nullptr && plan.packed_size_bytes() != 0) {
        return refuse_launch(kernel, launch, BP_INVALID_ARGUMENT, "the plan was not packed");
      }
      return plan.planned.launch(args, launch, launch.packed(plan.packed));
    } else {
      return plan.planned.launch(args, launch);
    }
  }

 private:
  using Env = typename Launcher::Env;
  using Owned = OwnedPlan<Planned>;

  static PlanBase* make(const void* args, const PlanRequest& request, const Env& env) {
    const Args& a = *static_cast<const Args*>(args);
    if (a.flags != 0) refuse(BP_UNSUPPORTED, "prepare: a flag of args is not known");
    return new Owned(a, request, env);
  }

  static bp_status prepare(const bp_kernel* self, bp_device* device, const bp_prepare_desc* desc,
                           const void* args, bp_plan** out_plan) {
    return prepare_plan<Launcher>(self, device, desc, args, out_plan, make);
  }

  static bp_status submit_packing(const bp_kernel&, const void* args,
                                  typename Launcher::Launch& launch) {
    const auto& plan = static_cast<const Owned&>(*plan_base(launch.plan()));
    return plan.planned.pack(*static_cast<const Args*>(args), launch, launch.packed(plan.packed));
  }

  static bp_status pack(const bp_kernel* self, const bp_launch* launch, const void* args,
                        const bp_buffer_ref* packed) {
    return guarded(Launcher::host_of(*self), [&]() -> bp_status {
      require(launch, "plan_pack: launch");
      auto& plan = static_cast<Owned&>(checked_plan(*self, launch->plan, "plan_pack"));
      if (Launcher::is_capturing(*self, *launch)) {
        refuse(BP_INVALID_ARGUMENT, "plan_pack: the stream captures; pack before the capture");
      }
      const uint64_t size_bytes = plan.packed_size_bytes();
      if (packed == nullptr || packed->buffer == nullptr || packed->size_bytes < size_bytes) {
        refuse(BP_INVALID_ARGUMENT,
               "plan_pack: packed must have at least " + std::to_string(size_bytes) + " bytes");
      }
      const bp_buffer_ref before = std::exchange(plan.packed, *packed);
      const bp_status status = Launcher::template run<submit_packing>(self, launch, args);
      if (status != BP_OK) plan.packed = before;
      return status;
    });
  }
};

// What a launch of such a row does.
template <typename Launcher, typename Args, auto LaunchOp, typename Planned>
bp_status launch_row(const bp_kernel& kernel, const void* args, typename Launcher::Launch& launch) {
  return launch_typed<Args>(kernel, args, launch, [&](const Args& a) -> bp_status {
    if (launch.plan() == nullptr) return LaunchOp(a, launch);
    if constexpr (std::is_void_v<Planned>) {
      return refuse_launch(kernel, launch, BP_INVALID_ARGUMENT, kForeignPlan);
    } else {
      return PlanFunctions<Launcher, Args, Planned>::launch(kernel, a, launch);
    }
  });
}

// Puts typed functions into `row`, which holds the rest.
//   LaunchOp   bp_status(const Args&, Launch&): reads the frame, and submits the work.
//   Planned    The class of the kernel's plans; void: the kernel has none.
//   Supports, Workspace   As typed_kernel() takes them.
template <typename Launcher, typename Args, auto LaunchOp, auto Supports, auto Workspace,
          typename Planned>
constexpr bp_kernel planned_kernel(bp_kernel row) {
  row = typed_kernel<typename Launcher::Env, Args, Supports, Workspace>(row);
  row.launch = Launcher::template run<launch_row<Launcher, Args, LaunchOp, Planned>>;
  if constexpr (!std::is_void_v<Planned>) PlanFunctions<Launcher, Args, Planned>::put(row);
  return row;
}

}  // namespace bp
