// Bases for the traits of stream_ops.hpp. StreamHandles looks up handles with lookup.hpp.
// QueueStreams has the rest too, for streams that are queues of queue.hpp and events whose moments
// are Points. The traits of a backend replace the functions that must do more.
//
//   struct Traits : QueueStreams<Instance, Device, Stream, Event> {
//     ...
//   };
//
// With a type Semaphore, they serve semaphore_ops.hpp too.
//
// A Stream has a `queue` and its `device`; the device has create_stream(), default_stream(),
// is_default_stream(stream) and destroy_stream(stream), and create_callback_stream() if its streams
// have fewer threads than callbacks of events may hold. lose_work() is for such streams too.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backplane/shell/handles.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/semaphore_ops.hpp"
#include "backplane/shell/stream_ops.hpp"

namespace bp {

// Ends the work of the streams of a lost device: it fails with `loss`, and waits no more. Streams
// of other devices may wait for the events that the host signals, which it cannot do from now on,
// so these events fail too. signal_of(moment) is the Point of the moment that the host completes.
template <typename Stream, typename Work, typename Event, typename SignalOf>
void lose_work(const StreamSet<Stream, Work>& streams, const HandleSet<Event>& events,
               const Outcome& loss, const SignalOf& signal_of) {
  for (const std::shared_ptr<Work>& work : streams.live_work()) work->lose(loss);
  std::vector<std::shared_ptr<typename Event::Moment>> signals;
  events.for_each([&](Event& event) {
    if (event.is_signalled()) signals.push_back(event.latest());
  });
  for (const auto& moment : signals) signal_of(*moment).complete(loss);
}

template <typename Instance, typename Device, typename ItsStream, typename ItsEvent>
struct StreamHandles : Cards<Instance, Device> {
  using Stream = ItsStream;
  using Event = ItsEvent;

  static Stream& stream_of(bp_stream* handle, const char* call) {
    return live_object_of<Stream>(handle, call, "stream");
  }
  static Stream& any_stream_of(bp_stream* handle, const char* call) {
    return checked_object_of<Stream>(handle, call, "stream");
  }
  static Event& event_of(bp_event* handle, const char* call, const char* what) {
    return live_object_of<Event>(handle, call, what);
  }
  static Event& any_event_of(bp_event* handle, const char* call) {
    return checked_object_of<Event>(handle, call, "event");
  }
};

template <typename Instance, typename Device, typename Stream, typename Event>
struct QueueStreams : StreamHandles<Instance, Device, Stream, Event> {
  static Stream* create_stream(Device& d, const bp_stream_desc&) { return d.create_stream(); }
  static Stream* callback_stream(Device& d) {
    if constexpr (requires { d.create_callback_stream(); })
      return d.create_callback_stream();
    else
      return d.create_stream();
  }
  static Stream* default_stream(Device& d) { return d.default_stream(); }
  static bool is_default_stream(const Stream& s) { return s.device->is_default_stream(&s); }
  static void destroy_stream(Stream& s) { s.device->destroy_stream(&s); }

  static bool is_idle(const Stream& s) { return s.queue->is_idle(); }
  static bool wait(const Stream& s, uint64_t timeout_ns) { return s.queue->wait(timeout_ns); }
  static void flush(const Stream&) {}  // A queue does not hold work back.
  static bp_status surface(const Stream& s) { return s.queue->surface(); }
  static bp_status admit(const Stream& s) { return s.queue->admit(); }
  static void clear_failure(const Stream& s) { s.queue->clear_failure(); }
  static bp_status wait_for(const Stream& s, const std::shared_ptr<Point>& point) {
    return s.queue->wait_for(point);
  }
  // Runs a task when what was submitted before has ended, also after a failure.
  static bp_status run_behind(const Stream& s, std::function<void(const Outcome&)> task) {
    return s.queue->submit_always(std::move(task), true);
  }
  static bp_status add_callback(const Stream& s, bp_stream_callback_fn* callback, void* user_data) {
    return s.queue->submit_always(
        [callback, user_data](const Outcome& before) { callback(user_data, before.status); },
        false);
  }

  // The functions below are for events whose moments are Points.
  static std::shared_ptr<Point> make_moment(const Event& e, const Stream&) {
    return std::make_shared<Point>(e.is_timed());
  }
  static bp_status record(const Stream& s, const Event&, const std::shared_ptr<Point>& point) {
    point->set_source(s.queue);
    return s.queue->submit_always([point](const Outcome& before) { point->complete(before); },
                                  true);
  }
  static bool has_come(const Event&, const Point& point) { return point.is_complete(); }
  static bool wait_until(const Event&, Point& point, uint64_t timeout_ns) {
    return point.wait(timeout_ns);
  }
  static const Outcome& outcome(const Event&, const Point& point) { return point.outcome(); }
  static Point& signal_of(Point& point) { return point; }
  static int64_t elapsed_ns(const Event&, const Point& begin, const Point& end) {
    return end.time_ns() - begin.time_ns();
  }
};

}  // namespace bp
