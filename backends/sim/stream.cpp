#include "backends/sim/stream.hpp"

#include <string>

#include "backends/sim/backend.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::sim {
namespace {

struct Traits : QueueStreams<Instance, Device, Stream, Event> {
  static Device& device_of(const Instance& i, bp_device* handle, const char* call) {
    return sim::device_of(i, handle, call);
  }
  static Stream& stream_of(bp_stream* handle, const char* call) {
    return sim::stream_of(handle, call);
  }
  static Stream& any_stream_of(bp_stream* handle, const char* call) {
    return sim::any_stream_of(handle, call);
  }
  static Event& event_of(bp_event* handle, const char* call, const char* what) {
    return sim::event_of(handle, call, what);
  }
  static Event& any_event_of(bp_event* handle, const char* call) {
    return sim::any_event_of(handle, call);
  }

  static bp_status add_callback(const Stream& s, bp_stream_callback_fn* callback, void* user_data) {
    return s.queue->submit_always(
        [lane = s.lane, callback, user_data](const Outcome& before) {
          lane->pause();
          callback(user_data, before.status);
        },
        false);
  }

  // The native handle of a stream is the address of its queue.
  static Stream* wrap_native(Device& d, void* native) { return d.wrap_stream(native); }
  static void* native_handle(const Stream& s) { return s.queue.get(); }

  static void check_event(const Device&, bp_event_flags flags) {
    if ((flags & BP_EVENT_EXPORTABLE) == 0) return;
    refuse(BP_UNSUPPORTED, "event.create: flags has BP_EVENT_EXPORTABLE, and option sharing is no");
  }
  static bp_status record(const Stream& s, const Event&, const std::shared_ptr<Point>& point) {
    return s.queue->submit_always(
        [lane = s.lane, point](const Outcome& before) {
          lane->pause();
          point->complete(before);
        },
        false);
  }
  static int64_t elapsed_ns(const Event& event, const Point& begin, const Point& end) {
    const DeviceClock& clock = event.device->clock();
    return clock.at_host_time(end.time_ns()) - clock.at_host_time(begin.time_ns());
  }
};

}  // namespace

Event::Event(Device& its_device, bp_event_flags its_flags)
    : Handle(kEventMagic, its_device), EventOf(its_flags, (its_flags & BP_EVENT_TIMING) != 0) {}

Stream& any_stream_of(bp_stream* handle, const char* call, const char* what) {
  return checked_object_of<Stream>(handle, kStreamMagic, call, what);
}

Event& any_event_of(bp_event* handle, const char* call, const char* what) {
  return checked_object_of<Event>(handle, kEventMagic, call, what);
}

Stream& stream_of(bp_stream* handle, const char* call, const char* what) {
  Stream& s = any_stream_of(handle, call, what);
  require_alive(s, call, what);
  return s;
}

Event& event_of(bp_event* handle, const char* call, const char* what) {
  Event& e = any_event_of(handle, call, what);
  require_alive(e, call, what);
  return e;
}

constinit const bp_stream_ops kStreams = StreamOps<Traits>::table();
constinit const bp_event_ops kEvents = EventOps<Traits>::table();

}  // namespace bp::sim
