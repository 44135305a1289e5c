// Events that processes share, in front of those of the backend.
#include "backends/cpu/device.hpp"
#include "backends/cpu/full_instance.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/shared_event_front.hpp"

namespace bp::cpu {
namespace {

SharedEvents& shared_events_of(void* self) { return *full_instance(self).shared_events; }

void check_device(void* self, bp_device* handle, const char* call) {
  device_of(instance(self), handle, call);
}

void check_event(void*, bp_event* handle, const char* call) { event_of(handle, call); }

void end_event(void*, bp_event* handle, bp_status status, const std::string& text) {
  event_of(handle, "event.signal").latest()->complete({.status = status, .text = text});
}

}  // namespace

void share_events(FullInstance& i) {
  i.shared_events = std::make_unique<SharedEvents>(SharedEventBackend{.host = i.host,
                                                                      .streams = i.streams,
                                                                      .events = i.events,
                                                                      .kind = "backplane.cpu.event",
                                                                      .check_device = check_device,
                                                                      .check_event = check_event,
                                                                      .end_event = end_event});
  SharedEventFront<shared_events_of>::put(i.streams, i.events);
}

}  // namespace bp::cpu
