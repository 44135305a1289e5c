#include "backends/cpu/profiler.hpp"

#include <chrono>

#include "backends/cpu/device.hpp"

namespace bp::cpu {

// The device's clock is CLOCK_MONOTONIC.
void make_profiler(Instance& i) {
  i.profiler = std::make_unique<Profiler>(ProfilerBackend{
      .host = i.host,
      .hooks = &i.hooks,
      .self = &i,
      .is_device = [](void* self,
                      bp_device* d) { return device_or_null(instance(self), d) != nullptr; },
      .now_ns = [](void*, bp_device*) -> int64_t {
        return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
      }});
  i.profiling = i.profiler->table();
}

std::function<void()> recorded(const Instance& i, const bp_kernel& kernel, const bp_launch& launch,
                               std::function<void()> task) {
  return i.profiler->recorded({.kind = BP_ACTIVITY_KERNEL,
                               .name = kernel.name,
                               .device = launch.device,
                               .stream = launch.stream,
                               .correlation_id = launch.correlation_id},
                              std::move(task));
}

}  // namespace bp::cpu
