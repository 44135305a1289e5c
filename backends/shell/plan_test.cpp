// Plans and the C functions around them, over kernels and launches that are none.
#include "backplane/shell/plan.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "backplane/ops.h"

namespace bp {
namespace {

// What the state of a kernel points to.
struct Machine {
  bp_host host{};
  std::string text;
  bool is_capturing = false;
  bp_status run_status = BP_OK;
  int packings = 0, planned_launches = 0, plain_launches = 0, plans = 0;
  bp_device_ops devices{};
  uint64_t generation = 0;
  const bp_kernel* asked_kernel = nullptr;
  bp_launch_flags asked_flags = 0;
};

Machine& machine_of(const bp_kernel& kernel) { return *static_cast<Machine*>(kernel.state); }

class Env {
 public:
  explicit Env(Machine& its_machine) : machine(its_machine) {}
  template <typename Body>
  static bp_status with(const bp_kernel& kernel, bp_device*, Body&& body) {
    return guarded(machine_of(kernel).host, [&] { return body(Env(machine_of(kernel))); });
  }
  Machine& machine;
};

// The address of a range is its offset.
class Launch : public Env {
 public:
  Launch(Machine& its_machine, const bp_launch& launch) : Env(its_machine), launch_(launch) {}
  bp_launch_flags flags() const { return launch_.flags; }
  bp_plan* plan() const { return launch_.plan; }
  std::byte* packed(const bp_buffer_ref& range) const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): these buffers are addresses.
    return reinterpret_cast<std::byte*>(range.byte_offset);
  }
  bp_status refuse(bp_status status, const std::string& text) {
    return machine.host.set_error(machine.host.self, status, text.c_str());
  }

 private:
  const bp_launch& launch_;
};

struct Launcher {
  using Env = bp::Env;
  using Launch = bp::Launch;
  static const bp_host& host_of(const bp_kernel& kernel) { return machine_of(kernel).host; }
  static const bp_device_ops& devices_of(const bp_kernel& kernel) {
    return machine_of(kernel).devices;
  }
  static bool is_capturing(const bp_kernel& kernel, const bp_launch&) {
    return machine_of(kernel).is_capturing;
  }
  template <auto kBody>
  static bp_status run(const bp_kernel* kernel, const bp_launch* launch, const void* args) {
    Machine& machine = machine_of(*kernel);
    if (machine.run_status != BP_OK) return machine.run_status;
    Launch context(machine, *launch);
    return kBody(*kernel, args, context);
  }
};

bp_status launch_neg(const bp_neg_args&, Launch& launch) {
  ++launch.machine.plain_launches;
  return BP_OK;
}

// Packs 48 bytes, unless nothing is constant.
class Plan {
 public:
  Plan(const bp_neg_args& args, const PlanRequest& request, const Env& env)
      : packed_bytes_(!request.constant_args.empty() ? 48 : 0), machine_(env.machine) {
    if (args.x == nullptr) refuse_plan("x is NULL");
    ++machine_.plans;
  }
  ~Plan() { --machine_.plans; }

  uint64_t packed_size_bytes() const { return packed_bytes_; }
  uint64_t workspace_size_bytes() const { return 16; }
  const char* algorithm() const { return "by hand"; }
  bp_status pack(const bp_neg_args&, Launch& launch, std::byte* packed) const {
    launch.machine.packings += reinterpret_cast<uintptr_t>(packed) == 64 ? 1 : 100;
    return BP_OK;
  }
  bp_status launch(const bp_neg_args&, Launch& launch, std::byte* packed) const {
    const uintptr_t expected = packed_bytes_ == 0 ? 0 : 64;
    launch.machine.planned_launches += reinterpret_cast<uintptr_t>(packed) == expected ? 1 : 100;
    return BP_OK;
  }

 private:
  const uint64_t packed_bytes_;
  Machine& machine_;
};

// Packs nothing, and keeps what it was asked for.
class BarePlan {
 public:
  BarePlan(const bp_neg_args&, const PlanRequest& request, const Env& env) {
    env.machine.asked_kernel = &request.kernel;
    env.machine.asked_flags = request.flags;
  }
  uint64_t workspace_size_bytes() const { return 8; }
  const char* algorithm() const { return "bare"; }
  bp_status launch(const bp_neg_args&, Launch& launch) const {
    ++launch.machine.planned_launches;
    return BP_OK;
  }
};

constexpr bp_dtype kDtypes[] = {BP_F32};
constexpr bp_kernel kRow = kernel_row("neg_of_test", BP_OP_NEG, kDtypes);
constexpr bp_kernel kPlain =
    planned_kernel<Launcher, bp_neg_args, launch_neg, nullptr, nullptr, void>(kRow);
constexpr bp_kernel kPlanned =
    planned_kernel<Launcher, bp_neg_args, launch_neg, nullptr, nullptr, Plan>(kRow);
constexpr bp_kernel kBare =
    planned_kernel<Launcher, bp_neg_args, launch_neg, nullptr, nullptr, BarePlan>(kRow);

class Plans : public testing::Test {
 protected:
  Plans() {
    machine.host.self = &machine;
    machine.host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<Machine*>(self)->text = reason;
      return status;
    };
    kernel.state = other.state = plain.state = bare.state = &machine;
    args.struct_size = sizeof(args);
    args.x = args.y = &tensor;
  }

  bp_plan* prepare(const std::vector<uint32_t>& constant_args) {
    const bp_prepare_desc desc{.struct_size = sizeof(bp_prepare_desc),
                               .struct_type = BP_STRUCT_PREPARE_DESC,
                               .constant_args = constant_args.data(),
                               .constant_arg_count = constant_args.size()};
    bp_plan* plan = nullptr;
    EXPECT_EQ(kernel.prepare(&kernel, nullptr, &desc, &args, &plan), BP_OK) << machine.text;
    return plan;
  }
  bp_status run(const bp_kernel& with, bp_plan* plan) {
    const bp_launch launch{.plan = plan};
    return with.launch(&with, &launch, &args);
  }
  bp_status pack(bp_plan* plan, const bp_buffer_ref& range) {
    const bp_launch launch{.plan = plan};
    return kernel.plan_pack(&kernel, &launch, &args, &range);
  }

  Machine machine;
  bp_kernel kernel = kPlanned, other = kPlanned, plain = kPlain, bare = kBare;
  bp_tensor tensor{};
  bp_neg_args args{};
  bp_buffer* const buffer = reinterpret_cast<bp_buffer*>(&tensor);
};

TEST_F(Plans, AreOfferedByKernelsThatHaveThemAlone) {
  EXPECT_TRUE(plain.prepare == nullptr && plain.plan_info == nullptr);
  EXPECT_TRUE(plain.plan_pack == nullptr && plain.plan_release == nullptr);
  EXPECT_TRUE(kernel.prepare != nullptr && kernel.plan_info != nullptr);
  EXPECT_TRUE(kernel.plan_pack != nullptr && kernel.plan_release != nullptr);
}

TEST_F(Plans, TellWhatTheyNeedAndEndWhenReleased) {
  bp_plan* const plan = prepare({0});
  bp_plan_info info{.struct_size = sizeof(bp_plan_info), .struct_type = BP_STRUCT_PLAN_INFO};
  ASSERT_EQ(kernel.plan_info(&kernel, plan, &info), BP_OK);
  EXPECT_EQ(info.packed_size_bytes, 48u);
  EXPECT_EQ(info.workspace_required_bytes, 16u);
  EXPECT_EQ(info.workspace_preferred_bytes, 16u);
  EXPECT_STREQ(info.algorithm, "by hand");
  EXPECT_EQ(kernel.plan_info(&kernel, nullptr, &info), BP_INVALID_ARGUMENT);
  EXPECT_EQ(machine.text, "plan_info: the plan is NULL or not one of this kernel");
  info.struct_size = 8;
  EXPECT_EQ(kernel.plan_info(&kernel, plan, &info), BP_INCOMPATIBLE);

  plan_base(plan)->retain();  // A launch that runs later.
  EXPECT_EQ(kernel.plan_release(&kernel, plan), BP_OK);
  EXPECT_EQ(machine.plans, 1);
  plan_base(plan)->release();
  EXPECT_EQ(machine.plans, 0);
  EXPECT_EQ(kernel.plan_release(&kernel, nullptr), BP_OK);
}

TEST_F(Plans, AreRefusedForFramesAndFlagsThatAreNotKnown) {
  bp_plan* plan = nullptr;
  bp_prepare_desc desc{.struct_size = sizeof(bp_prepare_desc),
                       .struct_type = BP_STRUCT_PREPARE_DESC,
                       .flags = 1u << 30};
  EXPECT_EQ(kernel.prepare(&kernel, nullptr, &desc, &args, &plan), BP_UNSUPPORTED);
  EXPECT_EQ(machine.text, "prepare: a launch flag is not known");
  desc.flags = BP_LAUNCH_DETERMINISTIC;
  args.flags = 1;
  EXPECT_EQ(kernel.prepare(&kernel, nullptr, &desc, &args, &plan), BP_UNSUPPORTED);
  EXPECT_EQ(machine.text, "prepare: a flag of args is not known");
  args.flags = 0;
  args.x = nullptr;
  EXPECT_EQ(kernel.prepare(&kernel, nullptr, &desc, &args, &plan), BP_UNSUPPORTED);
  EXPECT_EQ(machine.text, "no plan is of use: x is NULL");
  EXPECT_EQ(kernel.prepare(&kernel, nullptr, &desc, &args, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
}

TEST_F(Plans, ArePackedBeforeTheyLaunch) {
  bp_plan* const plan = prepare({0});
  EXPECT_EQ(run(kernel, plan), BP_INVALID_ARGUMENT);
  EXPECT_EQ(machine.text, "neg_of_test: the plan was not packed");
  EXPECT_EQ(pack(plan, {buffer, 64, 47}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(machine.text, "plan_pack: packed must have at least 48 bytes");
  machine.is_capturing = true;
  EXPECT_EQ(pack(plan, {buffer, 64, 48}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(machine.text, "plan_pack: the stream captures; pack before the capture");
  machine.is_capturing = false;
  machine.run_status = BP_DEVICE_LOST;
  EXPECT_EQ(pack(plan, {buffer, 64, 48}), BP_DEVICE_LOST);
  machine.run_status = BP_OK;
  EXPECT_EQ(run(kernel, plan), BP_INVALID_ARGUMENT) << "packing that failed packed nothing";

  ASSERT_EQ(pack(plan, {buffer, 64, 48}), BP_OK);
  EXPECT_EQ(machine.packings, 1);
  EXPECT_EQ(run(kernel, plan), BP_OK);
  EXPECT_EQ(machine.planned_launches, 1);
  kernel.plan_release(&kernel, plan);
}

TEST_F(Plans, LaunchTheirOwnKernelAlone) {
  bp_plan* const plan = prepare({});
  EXPECT_EQ(run(kernel, plan), BP_OK);
  EXPECT_EQ(machine.planned_launches, 1);
  EXPECT_EQ(run(other, plan), BP_INVALID_ARGUMENT);
  EXPECT_EQ(machine.text, "neg_of_test: the plan is not one of this kernel");
  EXPECT_EQ(run(plain, plan), BP_INVALID_ARGUMENT);
  const bp_launch launch{.plan = plan};
  const bp_buffer_ref range{buffer, 64, 48};
  EXPECT_EQ(other.plan_pack(&other, &launch, &args, &range), BP_INVALID_ARGUMENT);
  EXPECT_EQ(machine.plain_launches, 0);
  EXPECT_EQ(run(kernel, nullptr), BP_OK);
  EXPECT_EQ(machine.plain_launches, 1);
  kernel.plan_release(&kernel, plan);
}

TEST_F(Plans, AreLostByAResetOfTheirDevice) {
  machine.devices.self = &machine;
  machine.devices.reset = [](void*, bp_device*) -> bp_status { return BP_OK; };
  machine.devices.generation = [](void* self, bp_device*, uint64_t* out) -> bp_status {
    *out = static_cast<Machine*>(self)->generation;
    return BP_OK;
  };
  bp_plan* const plan = prepare({});
  EXPECT_EQ(run(kernel, plan), BP_OK);
  ++machine.generation;
  EXPECT_EQ(run(kernel, plan), BP_DEVICE_LOST);
  EXPECT_EQ(machine.text, "neg_of_test: the plan was made before its device was reset");
  EXPECT_EQ(pack(plan, {buffer, 64, 48}), BP_DEVICE_LOST);
  bp_plan_info info{.struct_size = sizeof(bp_plan_info), .struct_type = BP_STRUCT_PLAN_INFO};
  EXPECT_EQ(kernel.plan_info(&kernel, plan, &info), BP_DEVICE_LOST);
  EXPECT_EQ(kernel.plan_release(&kernel, plan), BP_OK);
  EXPECT_EQ(machine.plans, 0);
}

TEST_F(Plans, WithoutConstantArgumentsHaveNothingToPack) {
  const bp_prepare_desc desc{.struct_size = sizeof(bp_prepare_desc),
                             .struct_type = BP_STRUCT_PREPARE_DESC,
                             .flags = BP_LAUNCH_DETERMINISTIC};
  bp_plan* plan = nullptr;
  ASSERT_EQ(bare.prepare(&bare, nullptr, &desc, &args, &plan), BP_OK) << machine.text;
  EXPECT_EQ(machine.asked_kernel, &bare);
  EXPECT_EQ(machine.asked_flags, bp_launch_flags{BP_LAUNCH_DETERMINISTIC});
  bp_plan_info info{.struct_size = sizeof(bp_plan_info), .struct_type = BP_STRUCT_PLAN_INFO};
  ASSERT_EQ(bare.plan_info(&bare, plan, &info), BP_OK);
  EXPECT_EQ(info.packed_size_bytes, 0u);
  EXPECT_EQ(info.workspace_required_bytes, 8u);
  EXPECT_STREQ(info.algorithm, "bare");

  const bp_launch launch{.plan = plan};
  const bp_buffer_ref range{buffer, 64, 48};
  EXPECT_EQ(bare.plan_pack(&bare, &launch, &args, &range), BP_INVALID_ARGUMENT);
  EXPECT_EQ(machine.text, "plan_pack: the plan has nothing to pack");
  EXPECT_EQ(kernel.plan_pack(&kernel, &launch, &args, &range), BP_INVALID_ARGUMENT);
  EXPECT_EQ(machine.text, "plan_pack: the plan is NULL or not one of this kernel");
  EXPECT_EQ(run(bare, plan), BP_OK);
  EXPECT_EQ(machine.planned_launches, 1);
  EXPECT_EQ(run(kernel, plan), BP_INVALID_ARGUMENT);
  EXPECT_EQ(bare.plan_release(&bare, plan), BP_OK);
}

}  // namespace
}  // namespace bp
