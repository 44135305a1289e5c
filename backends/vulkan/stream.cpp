#include "backends/vulkan/stream.hpp"

#include <functional>
#include <string>
#include <utility>

#include "backends/vulkan/backend.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/queue_streams.hpp"

namespace bp::vulkan {
namespace {

// Records the moment on the device. If recording fails, the moment fails.
void capture(Lane& lane, Moment& moment, bool is_timed, const Outcome& before) {
  std::shared_ptr<Timestamp> time;
  Ticket ticket = lane.last();
  try {
    if (is_timed) {
      ticket = lane.recorder().record([&](Recording& recording) { time = recording.stamp(); });
      lane.advance(ticket);
    }
    lane.recorder().flush();
  } catch (const StatusError& e) {
    moment.complete(ticket, nullptr, {.status = e.status(), .text = e.what()});
    return;
  }
  moment.complete(ticket, std::move(time), before);
}

struct Traits : QueueStreams<Instance, Device, Stream, Event> {
  static void destroy_stream(Stream& s) {
    const std::shared_ptr<Lane> lane = s.lane;
    s.device->destroy_stream(&s);
    // Recorded work completes without the stream, except on a lost device.
    if (!lane->recorder().is_lost()) lane->recorder().flush();
  }
  static bool is_idle(const Stream& s) {
    s.lane->recorder().flush();
    return s.queue->is_idle() && s.lane->recorder().is_done(s.lane->last());
  }
  static bool wait(const Stream& s, uint64_t timeout_ns) { return wait_for_stream(s, timeout_ns); }
  static void flush(const Stream& s) { s.lane->recorder().flush(); }
  using Semaphore = vulkan::Semaphore;

  static bp_status wait_for(const Stream& s, const std::shared_ptr<Moment>& moment);
  static bp_status wait_for(const Stream& s, const std::shared_ptr<Point>& point) {
    return s.queue->wait_for(point);
  }
  static bp_status run_behind(const Stream& s, std::function<void(const Outcome&)> task);
  static bp_status add_callback(const Stream& s, bp_stream_callback_fn* callback, void* user_data) {
    return run_behind(
        s, [callback, user_data](const Outcome& before) { callback(user_data, before.status); });
  }

  static void check_event(const Device& d, bp_event_flags flags) {
    if ((flags & BP_EVENT_TIMING) == 0 || d.physical().timestamp_bits != 0) return;
    refuse(BP_UNSUPPORTED,
           "event.create: flags has BP_EVENT_TIMING, and the device's queue has no timestamps");
  }
  static std::shared_ptr<Moment> make_moment(const Event&, const Stream& s) {
    s.lane->recorder().flush();  // This also helps a record that waits on the host.
    return std::make_shared<Moment>(s.lane->shared_engine());
  }
  static bp_status record(const Stream& s, const Event& e, const std::shared_ptr<Moment>& moment) {
    return s.queue->submit_always(
        [lane = s.lane, moment, is_timed = e.is_timed()](const Outcome& before) {
          capture(*lane, *moment, is_timed, before);
        },
        false);
  }
  static bool has_come(const Event&, const Moment& moment) { return moment.is_done(); }
  static bool wait_until(const Event&, const Moment& moment, uint64_t timeout_ns) {
    return moment.wait(timeout_ns);
  }
  static const Outcome& outcome(const Event&, const Moment& moment) {
    return moment.submitted->outcome();
  }
  static Point& signal_of(const Moment& moment) { return *moment.submitted; }
  static bool has_time(const Moment& moment) { return moment.time != nullptr; }
  static bool has_one_clock(const Moment& begin, const Moment& end) {
    return begin.engine == end.engine;
  }
  static int64_t elapsed_ns(const Event&, const Moment& begin, const Moment& end) {
    return end.time->time_ns() - begin.time->time_ns();
  }
};

// Makes `s` wait for the moment. Work of one device is recorded in one order, so work that is
// recorded behind the event waits for it.
bp_status Traits::wait_for(const Stream& s, const std::shared_ptr<Moment>& moment) {
  if (moment->engine != nullptr && moment->engine != s.lane->shared_engine()) {
    moment->watch();
    return s.queue->wait_for(moment->ended);
  }
  const bp_status status = s.queue->wait_for(moment->submitted);
  // Work behind the wait ends after the event.
  const bp_status followed = s.queue->submit_always(
      [lane = s.lane, moment](const Outcome&) { lane->advance(moment->ticket); }, false);
  return status == BP_OK ? followed : status;
}

// Runs a task in two steps. The first waits until the device has reached it, without a blocked
// thread. The second runs the task. A stream that has failed skips the first step, and the second
// one waits.
bp_status Traits::run_behind(const Stream& s, std::function<void(const Outcome&)> task) {
  const std::shared_ptr<Lane> lane = s.lane;
  lane->recorder().flush();  // This also helps a task that waits on the host.
  const auto reached = std::make_shared<Point>(false);
  const bp_status status = s.queue->submit_always(
      [lane, reached](const Outcome&) {
        try {
          lane->recorder().when_done(lane->last(), [reached] { reached->complete({}); });
        } catch (const StatusError&) {
          reached->complete({});  // On a lost device nothing runs.
        }
      },
      false);
  if (status != BP_OK) return status;
  static_cast<void>(s.queue->wait_for(reached));
  return s.queue->submit_always(
      [lane, task = std::move(task)](const Outcome& before) {
        try {
          lane->recorder().wait(lane->last(), UINT64_MAX);
        } catch (const StatusError&) {
          // The device was lost meanwhile. The failure is in `before`, or the next call returns it.
        }
        task(before);
      },
      false);
}

}  // namespace

// ---- Moments ------------------------------------------------------------------------------------

void Moment::complete(Ticket its_ticket, std::shared_ptr<Timestamp> its_time,
                      const Outcome& outcome) {
  ticket = its_ticket;
  time = std::move(its_time);
  submitted->complete(outcome);
  bool is_watched = false;
  {
    const std::lock_guard lock(mutex_);
    is_watched = is_watched_;
  }
  if (!is_watched) return;
  const auto end = [point = ended, outcome] { point->complete(outcome); };
  try {
    engine->recorder.when_done(ticket, end);
  } catch (const StatusError&) {
    end();
  }
}

void Moment::watch() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_watched_, true)) return;
  }
  if (!submitted->is_complete()) return;
  const auto end = [point = ended, outcome = submitted->outcome()] { point->complete(outcome); };
  engine->recorder.when_done(ticket, end);
}

bool Moment::wait(uint64_t timeout_ns) const {
  const Deadline deadline(timeout_ns);
  if (!submitted->wait(timeout_ns)) return false;
  return engine == nullptr || engine->recorder.wait(ticket, deadline.left_ns());
}

// The argument is a copy, because another thread may destroy the stream meanwhile.
bool wait_for_stream(Stream stream, uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  Recorder& recorder = stream.lane->recorder();
  recorder.flush();
  if (!stream.queue->wait(timeout_ns)) return false;
  return recorder.wait(stream.lane->last(), deadline.left_ns());
}

// ---- Handles ------------------------------------------------------------------------------------

Event::Event(Device& its_device, bp_event_flags its_flags)
    : Handle(kMagic, its_device), EventOf(its_flags, nullptr) {}

constinit const bp_stream_ops kStreams = StreamOps<Traits>::table();
constinit const bp_event_ops kEvents = EventOps<Traits>::table();
constinit const bp_semaphore_ops kSemaphores = SemaphoreOps<Traits>::table();

}  // namespace bp::vulkan
