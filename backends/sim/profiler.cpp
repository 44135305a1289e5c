// Activity records of the simulated device, with times of the device's clock.
#include "backplane/shell/profiler.hpp"

#include "backends/sim/device.hpp"
#include "backends/sim/stream.hpp"

namespace bp::sim {
namespace {

struct ProfilerTraits : Cards<Instance, Device> {
  static int64_t now_ns(const Device& d) { return d.clock().at_host_time(host_now_ns()); }
};

}  // namespace

void make_profiler(Instance& i) { offer_profiler<ProfilerTraits>(i); }

std::function<void()> recorded(Stream& stream, const WorkName& work, std::function<void()> task) {
  return bp::recorded(*stream.device->owner().profiler, stream, work, std::move(task));
}

}  // namespace bp::sim
