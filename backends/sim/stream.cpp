#include "backends/sim/stream.hpp"

#include <functional>
#include <string>
#include <utility>

#include "backends/sim/backend.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::sim {
namespace {

struct Traits : QueueStreams<Instance, Device, Stream, Event> {
  using Semaphore = sim::Semaphore;

  static const char* file_kind(const Instance& i) {
    return i.options.has_sharing ? "backplane.sim.semaphore" : nullptr;
  }

  static bp_status run_behind(const Stream& s, std::function<void(const Outcome&)> task) {
    return s.queue->submit_always(
        [lane = s.lane, task = std::move(task)](const Outcome& before) {
          lane->pause();
          task(before);
        },
        false);
  }
  static bp_status add_callback(const Stream& s, bp_stream_callback_fn* callback, void* user_data) {
    return run_behind(
        s, [callback, user_data](const Outcome& before) { callback(user_data, before.status); });
  }

  // The native handle of a stream is the address of its queue.
  static Stream* wrap_native(Device& d, void* native) { return d.wrap_stream(native); }
  static void* native_handle(const Stream& s) { return s.queue.get(); }

  static void check_event(const Device&, bp_event_flags flags) {
    if ((flags & BP_EVENT_EXPORTABLE) == 0) return;
    refuse(BP_UNSUPPORTED, "event.create: flags has BP_EVENT_EXPORTABLE, and option sharing is no");
  }
  static bp_status record(const Stream& s, const Event&, const std::shared_ptr<Point>& point) {
    return run_behind(s, [point](const Outcome& before) { point->complete(before); });
  }
  static int64_t elapsed_ns(const Event& event, const Point& begin, const Point& end) {
    const DeviceClock& clock = event.device->clock();
    return clock.at_host_time(end.time_ns()) - clock.at_host_time(begin.time_ns());
  }
};

}  // namespace

Event::Event(Device& its_device, bp_event_flags its_flags)
    : Handle(kMagic, its_device), EventOf(its_flags, (its_flags & BP_EVENT_TIMING) != 0) {}

constinit const bp_stream_ops kStreams = StreamOps<Traits>::table();
constinit const bp_event_ops kEvents = EventOps<Traits>::table();
constinit const bp_semaphore_ops kSemaphores = SemaphoreOps<Traits>::table();

}  // namespace bp::sim
