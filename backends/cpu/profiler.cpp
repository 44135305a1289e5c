// Activity records of the CPU backend. The device's clock is that of the host.
#include "backends/cpu/profiler.hpp"

#include "backends/cpu/device.hpp"

namespace bp::cpu {

void make_profiler(Instance& i) { offer_profiler<Cards<Instance, Device>>(i); }

std::function<void()> recorded(const Instance& i, const bp_kernel& kernel, const bp_launch& launch,
                               std::function<void()> task) {
  return i.profiler->recorded(
      {.kind = BP_ACTIVITY_KERNEL, .name = kernel.name, .correlation_id = launch.correlation_id},
      launch.device, launch.stream, std::move(task));
}

}  // namespace bp::cpu
