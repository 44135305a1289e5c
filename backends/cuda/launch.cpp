#include <memory>

#include "backends/cuda/device.hpp"
#include "backends/cuda/kernel_env.hpp"
#include "backends/cuda/library_tables.hpp"
#include "backends/cuda/make_kernel.hpp"
#include "backends/cuda/memory.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/plan.hpp"
#include "backplane/shell/work.hpp"

namespace bp::cuda {
namespace {

// The shared memory of a block without a request.
constexpr size_t kSharedBytes = size_t{48} << 10;

// Keeps a plan alive for a held launch, also when the host has released the plan.
struct PlanUse {
  explicit PlanUse(bp_plan* its_plan) : plan(plan_base(its_plan)) {
    if (plan != nullptr) plan->retain();
  }
  PlanUse(const PlanUse&) = delete;
  ~PlanUse() {
    if (plan != nullptr) plan->release();
  }
  PlanBase* plan;
};

// Submits the work of a launch, with the context. If a library could not run a kernel, the stream
// says whether the device is lost.
bp_status run_body(LaunchBody body, Lane& lane, const bp_kernel& kernel, const void* args,
                   Launch& launch) {
  try {
    return body(kernel, args, launch);
  } catch (const ExecutionFailed& e) {
    const Driver& driver = lane.device().driver();
    const cudaError_t error = driver.cudaStreamQuery(lane.native());
    driver.cudaGetLastError();
    if (failure_of(error) != Failure::kLoss) throw;
    lane.device().note(CudaError(driver, error, e.what()));
    throw StatusError(BP_DEVICE_LOST, lane.device().loss());
  }
}

// Keeps the launch until its stream goes on. A launch that would be refused then is refused now.
bp_status hold(Instance& i, Lane& lane, const bp_kernel& kernel, const bp_launch& launch,
               const void* args, LaunchBody body) {
  bp_status status = lane.admit();
  Launch dry_run(i, lane, kernel, launch, Launch::Mode::kCheck);
  if (status == BP_OK) status = body(kernel, args, dry_run);
  if (status != BP_OK) return status;
  auto work = std::make_shared<Work>(Work::launch(*i.host, kernel, launch, args));
  auto plan = std::make_shared<PlanUse>(launch.plan);
  return lane.hold([&i, &lane, work, plan, body] {
    Launch late(i, lane, *work->kernel, work->launch_data, Launch::Mode::kHeld);
    const bp_status outcome = run_body(body, lane, *work->kernel, work->frame.data(), late);
    if (outcome != BP_OK) throw StatusError(outcome, late.refusal());
  });
}

// What plans need of an instance.
using InstanceLauncher = LauncherOf<Instance, Env, Launch>;

}  // namespace

const bp_host& Launcher::host_of(const bp_kernel& kernel) {
  return InstanceLauncher::host_of(kernel);
}

const bp_device_ops& Launcher::devices_of(const bp_kernel& kernel) {
  return InstanceLauncher::devices_of(kernel);
}

bool Launcher::is_capturing(const bp_kernel& kernel, const bp_launch& launch) {
  return InstanceLauncher::is_capturing(kernel, launch);
}

const bp_host& Env::host_of(const bp_kernel& kernel) { return Launcher::host_of(kernel); }

Env Env::of(const bp_kernel& kernel, bp_device* device) {
  Instance& i = cuda::instance(kernel.state);
  return Env(i, device_of(i, device, kernel.name));
}

std::optional<Env> Env::find(const bp_kernel& kernel, bp_device* device) {
  Instance& i = cuda::instance(kernel.state);
  Device* const known = Cards<Instance, Device>::find(i, device);
  return known == nullptr ? std::nullopt : std::optional(Env(i, *known));
}

const Driver& Env::driver() const { return instance_.driver; }
Engines& Env::engines() const { return *instance_.engines; }
const Options& Env::options() const { return instance_.options; }
const DeviceLimits& Env::limits() const { return device_.limits(); }

Launch::Launch(Instance& instance, Lane& lane, const bp_kernel& kernel, const bp_launch& launch,
               Mode mode)
    : Env(instance, lane.device()),
      lane_(lane),
      stream_(lane.native()),
      kernel_(kernel),
      launch_(launch),
      mode_(mode) {}

Reporter Launch::reporter(const bp_tensor& indices, const char* argument, int64_t extent) const {
  if (only_checks()) return {};
  return lane_.next_reporter({kernel_.name, argument, data<const std::byte>(indices),
                              dtype_size_bytes(indices.dtype), extent});
}

bp_status Launch::launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                         void** args) const {
  if (only_checks() || grid.x == 0 || grid.y == 0 || grid.z == 0) return BP_OK;
  if (shared_bytes > kSharedBytes) {
    const bp_status status =
        checked(device_.allow_shared_bytes(kernel, shared_bytes), "cudaFuncSetAttribute");
    if (status != BP_OK) return status;
  }
  return checked(driver().cudaLaunchKernel(kernel, grid, block, args, shared_bytes, stream()),
                 "cudaLaunchKernel");
}

bp_status Launch::fill(void* at, uint8_t byte, size_t size_bytes) const {
  if (only_checks() || size_bytes == 0) return BP_OK;
  return checked(driver().cudaMemsetAsync(at, byte, size_bytes, stream()), "cudaMemsetAsync");
}

bp_status Launch::checked(cudaError_t error, const char* what) const {
  if (error == cudaSuccess) [[likely]] {
    return BP_OK;
  }
  driver().cudaGetLastError();
  const CudaError failure(driver(), error, what);
  device_.note(failure);
  return refuse(failure.status(), std::string(kernel_.name) + ": " + failure.what());
}

bp_status Launch::refuse(bp_status status, const std::string& text) const {
  if (mode_ == Mode::kHeld) {  // The host reads no error slot of this thread.
    refusal_ = text;
    return status;
  }
  return instance_.fail(status, text);
}

bp_status run_launch(const bp_kernel* kernel, const bp_launch* launch, const void* args,
                     LaunchBody body) {
  Instance& i = instance(kernel->state);
  return guarded(*i.host, [&]() -> bp_status {
    require(launch, "launch: launch");
    require(args, "launch: args");
    Lane& lane = lane_of(launch->stream, "launch");
    if (i.hooks.is_capture_open() && i.captures->is_capturing(launch->stream)) [[unlikely]] {
      return i.captures->launch(*kernel, *launch, args, [&] {
        Launch dry_run(i, lane, *kernel, *launch, Launch::Mode::kCheck);
        return body(*kernel, args, dry_run);
      });
    }
    if (!lane.is_free()) [[unlikely]] {
      return hold(i, lane, *kernel, *launch, args, body);
    }
    if (const bp_status status = lane.admit(); status != BP_OK) return status;
    const Current current(lane.device());
    Launch now(i, lane, *kernel, *launch, Launch::Mode::kNow);
    return run_body(body, lane, *kernel, args, now);
  });
}

}  // namespace bp::cuda
