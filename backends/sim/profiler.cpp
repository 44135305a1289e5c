// Activity records of the simulated device, with times of the device's clock.
#include "backplane/shell/profiler.hpp"

#include <chrono>

#include "backends/sim/device.hpp"
#include "backends/sim/stream.hpp"

namespace bp::sim {
namespace {

bool is_device(void* self, bp_device* handle) {
  return Cards<Instance, Device>::find(instance(self), handle) != nullptr;
}

int64_t now_ns(void*, bp_device* handle) {
  const auto host_ns =
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  return reinterpret_cast<Device*>(handle)->clock().at_host_time(host_ns);
}

}  // namespace

void make_profiler(Instance& i) {
  i.profiler = std::make_unique<Profiler>(ProfilerBackend{
      .host = i.host, .hooks = &i.hooks, .self = &i, .is_device = is_device, .now_ns = now_ns});
  i.profiling = i.profiler->table();
}

std::function<void()> recorded(Stream& stream, const WorkName& name, std::function<void()> task) {
  return stream.device->owner().profiler->recorded(
      {.kind = name.kind,
       .name = name.name,
       .device = reinterpret_cast<bp_device*>(stream.device),
       .stream = reinterpret_cast<bp_stream*>(&stream),
       .correlation_id = name.correlation_id,
       .bytes = name.bytes},
      std::move(task));
}

}  // namespace bp::sim
