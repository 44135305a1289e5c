#include "backends/cpu/stream.hpp"

#include "backends/cpu/device.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::cpu {
namespace {

// The device of this backend is never lost, so a handle is valid until it is destroyed.
struct Traits : QueueStreams<Instance, Device, Stream, Event> {
  static Device& device_of(const Instance& i, bp_device* handle, const char* call) {
    return cpu::device_of(i, handle, call);
  }
  static Stream& stream_of(bp_stream* handle, const char* call) {
    return cpu::stream_of(handle, call);
  }
  static Stream& any_stream_of(bp_stream* handle, const char* call) {
    return cpu::stream_of(handle, call);
  }
  static Event& event_of(bp_event* handle, const char* call, const char* what) {
    return cpu::event_of(handle, call, what);
  }
  static Event& any_event_of(bp_event* handle, const char* call) {
    return cpu::event_of(handle, call);
  }

  // The native handle of a stream is the address of its queue.
  static Stream* wrap_native(Device& d, void* native) { return d.wrap_stream(native); }
  static void* native_handle(const Stream& s) { return s.queue.get(); }
};

}  // namespace

Stream& stream_of(bp_stream* handle, const char* call, const char* what) {
  return checked_object_of<Stream>(handle, kStreamMagic, call, what);
}

Event& event_of(bp_event* handle, const char* call, const char* what) {
  return checked_object_of<Event>(handle, kEventMagic, call, what);
}

constinit const bp_stream_ops kStreams = StreamOps<Traits>::table();
constinit const bp_event_ops kEvents = EventOps<Traits>::table();

}  // namespace bp::cpu
