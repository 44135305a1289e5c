#include "backends/cpu/full_instance.hpp"

#include "backends/cpu/blocked_weight.hpp"
#include "backends/cpu/device.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/shared_event_front.hpp"

namespace bp::cpu {
namespace {

SharedEvents& shared_events_of(void* self) { return *full_instance(self).shared_events; }

void check_device(void* self, bp_device* handle, const char* call) {
  device_of(instance(self), handle, call);
}

void check_event(void*, bp_event* handle, const char* call) { event_of(handle, call); }

}  // namespace

FullInstance::FullInstance(const bp_host* its_host) : Instance(its_host) {
  shared_events = std::make_unique<SharedEvents>(SharedEventBackend{.host = host,
                                                                    .streams = streams,
                                                                    .events = events,
                                                                    .kind = "backplane.cpu.event",
                                                                    .check_device = check_device,
                                                                    .check_event = check_event});
  SharedEventFront<shared_events_of>::put(streams, events);
  make_layouts(*this);
}

FullInstance::~FullInstance() = default;

}  // namespace bp::cpu
