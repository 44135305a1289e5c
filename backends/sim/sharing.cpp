// Removes entries of tables as the options say, and adds events that processes share.
#include "backends/sim/backend.hpp"
#include "backends/sim/device.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/shell/shared_event_front.hpp"

namespace bp::sim {
namespace {

SharedEvents& shared_events_of(void* self) { return *instance(self).shared_events; }

void check_device(void* self, bp_device* handle, const char* call) {
  static_cast<void>(device_of(instance(self), handle, call));
}

void check_event(void*, bp_event* handle, const char* call) {
  static_cast<void>(live_object_of<Event>(handle, call, "event"));
}

void end_event(void*, bp_event* handle, bp_status status, const std::string& text) {
  live_object_of<Event>(handle, "event.signal", "event")
      .latest()
      ->complete({.status = status, .text = text});
}

}  // namespace

void fit_tables(Instance& i) {
  if (!i.options.has_addresses) i.allocator.wrap_address = nullptr;
  if (!i.options.has_addresses) i.allocator.address_info = nullptr;
  if (!i.options.has_registration) i.allocator.register_host = nullptr;
  if (!i.options.has_registration) i.allocator.unregister_host = nullptr;
  if (!i.options.has_native_streams) i.streams.wrap_native = nullptr;
  if (!i.options.has_native_streams) i.streams.native_handle = nullptr;
  if (!i.options.has_sharing) {
    i.allocator.export_buffer = nullptr;
    i.allocator.import_buffer = nullptr;
    return;
  }
  i.shared_events = std::make_unique<SharedEvents>(SharedEventBackend{.host = i.host,
                                                                      .streams = i.streams,
                                                                      .events = i.events,
                                                                      .kind = "backplane.sim.event",
                                                                      .check_device = check_device,
                                                                      .check_event = check_event,
                                                                      .end_event = end_event});
  SharedEventFront<shared_events_of>::put(i.streams, i.events);
}

}  // namespace bp::sim
