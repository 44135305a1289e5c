#include "backends/vulkan/stream.hpp"

#include <chrono>
#include <cstddef>
#include <string>

#include "backends/vulkan/entry.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::vulkan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr bp_event_flags kEventFlags = BP_EVENT_TIMING | BP_EVENT_HOST_SIGNAL | BP_EVENT_EXPORTABLE;

[[noreturn]] void refuse_handle(const char* call, const char* what) {
  refuse(BP_INVALID_ARGUMENT,
         std::string(call) + ": " + what + " is NULL or not one of this backend");
}

Stream* stream_or_null(bp_stream* handle) {
  Stream* const s = reinterpret_cast<Stream*>(handle);
  return s != nullptr && s->magic == kStreamMagic ? s : nullptr;
}

Event* event_or_null(bp_event* handle) {
  Event* const e = reinterpret_cast<Event*>(handle);
  return e != nullptr && e->magic == kEventMagic ? e : nullptr;
}

bp_status timed_out(const Instance& i, const char* call, uint64_t timeout_ns) {
  return i.fail(BP_TIMEOUT, std::string(call) + ": the work did not end within " +
                                std::to_string(timeout_ns) + " ns");
}

// What is left of timeout_ns since `begin`.
uint64_t time_left(Clock::time_point begin, uint64_t timeout_ns) {
  const auto passed = static_cast<uint64_t>((Clock::now() - begin) / std::chrono::nanoseconds(1));
  if (timeout_ns == UINT64_MAX) return timeout_ns;
  return passed < timeout_ns ? timeout_ns - passed : 0;
}

// ---- Streams ------------------------------------------------------------------------------------

bp_status stream_create(void* self, bp_device* handle, const bp_stream_desc* desc,
                        bp_stream** out_stream) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "stream.create");
    require(out_stream, "stream.create: out_stream");
    const auto request =
        read_desc(desc, kFirstSize<bp_stream_desc>, BP_STRUCT_STREAM_DESC, "stream.create");
    if (request.flags != BP_STREAM_DEFAULT) {
      refuse(BP_INVALID_ARGUMENT,
             "stream.create: flags is " + std::to_string(request.flags) + ", and no flag is known");
    }
    *out_stream = reinterpret_cast<bp_stream*>(d.create_stream());
    return BP_OK;
  });
}

bp_status stream_default(void* self, bp_device* handle, bp_stream** out_stream) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "stream.default_stream");
    require(out_stream, "stream.default_stream: out_stream");
    *out_stream = reinterpret_cast<bp_stream*>(d.default_stream());
    return BP_OK;
  });
}

bp_status stream_destroy(void* self, bp_stream* handle) {
  if (handle == nullptr) return BP_OK;
  return entry(self, [&](const Instance&) {
    Stream& s = any_stream_of(handle, "stream.destroy");
    if (s.device->is_default_stream(&s)) {
      refuse(BP_INVALID_ARGUMENT, "stream.destroy: the default stream is lent");
    }
    const std::shared_ptr<Lane> lane = s.lane;
    s.device->destroy_stream(&s);
    // What it recorded completes without it; on a lost device nothing does.
    if (!lane->recorder().is_lost()) lane->recorder().flush();
    return BP_OK;
  });
}

bp_status stream_query(void* self, bp_stream* handle, uint32_t* out_done) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "stream.query");
    require(out_done, "stream.query: out_done");
    s.lane->recorder().flush();
    *out_done = s.queue->is_idle() && s.lane->recorder().is_done(s.lane->last()) ? 1 : 0;
    return BP_OK;
  });
}

bp_status stream_status(void* self, bp_stream* handle) {
  return entry(
      self, [&](const Instance&) { return stream_of(handle, "stream.status").queue->surface(); });
}

bp_status stream_clear_failure(void* self, bp_stream* handle) {
  return entry(self, [&](const Instance&) {
    stream_of(handle, "stream.clear_failure").queue->clear_failure();
    return BP_OK;
  });
}

bp_status stream_synchronize(void* self, bp_stream* handle, uint64_t timeout_ns) {
  return entry(self, [&](const Instance& i) {
    const Stream& s = stream_of(handle, "stream.synchronize");
    const std::shared_ptr<Queue> queue = s.queue;
    if (!wait_for_stream(s, timeout_ns)) return timed_out(i, "stream.synchronize", timeout_ns);
    return queue->surface();
  });
}

bp_status stream_flush(void* self, bp_stream* handle) {
  return entry(self, [&](const Instance&) {
    stream_of(handle, "stream.flush").lane->recorder().flush();
    return BP_OK;
  });
}

// Work of one device is recorded in one order: to be recorded behind the event is to wait for it.
bp_status stream_wait_event(void* self, bp_stream* handle, bp_event* event_handle) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "stream.wait_event");
    const std::shared_ptr<Moment> moment = event_of(event_handle, "stream.wait_event").latest();
    if (moment == nullptr) return s.queue->surface();
    if (moment->engine == nullptr || moment->engine == s.lane->shared_engine()) {
      const bp_status status = s.queue->wait_for(moment->submitted);
      // What ends behind the wait ends behind the event.
      const bp_status followed = s.queue->submit_always(
          [lane = s.lane, moment](const Outcome&) { lane->advance(moment->ticket); }, false);
      return status == BP_OK ? followed : status;
    }
    moment->watch();
    return s.queue->wait_for(moment->ended);
  });
}

// Two steps: the first waits until the device has come to it, without a thread that blocks; the
// second calls. A stream that has failed skips the first, and the second waits.
bp_status stream_add_callback(void* self, bp_stream* handle, bp_stream_callback_fn* callback,
                              void* user_data) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "stream.add_callback");
    require(reinterpret_cast<const void*>(callback), "stream.add_callback: callback");
    const std::shared_ptr<Lane> lane = s.lane;
    lane->recorder().flush();  // Also if the call itself waits on the host.
    const auto reached = std::make_shared<Point>(false);
    const bp_status status = s.queue->submit_always(
        [lane, reached](const Outcome&) {
          try {
            lane->recorder().when_done(lane->last(), [reached] { reached->complete({}); });
          } catch (const StatusError&) {
            reached->complete({});  // Lost: nothing runs any more.
          }
        },
        false);
    if (status != BP_OK) return status;
    static_cast<void>(s.queue->wait_for(reached));
    return s.queue->submit_always(
        [lane, callback, user_data](const Outcome& before) {
          try {
            lane->recorder().wait(lane->last(), UINT64_MAX);
          } catch (const StatusError&) {
            // Lost meanwhile; the failure is in `before` or comes with the next call.
          }
          callback(user_data, before.status);
        },
        false);
  });
}

// ---- Events -------------------------------------------------------------------------------------

void check_event_request(const Device& d, const bp_event_desc& request) {
  if ((request.flags & ~kEventFlags) != 0 || request.reserved != 0) {
    refuse(BP_INVALID_ARGUMENT, "event.create: flags is " + std::to_string(request.flags) +
                                    ", reserved is " + std::to_string(request.reserved) +
                                    "; known are bits " + std::to_string(kEventFlags) + ", and 0");
  }
  if ((request.flags & BP_EVENT_EXPORTABLE) != 0) {
    refuse(BP_UNSUPPORTED,
           "event.create: flags has BP_EVENT_EXPORTABLE, and events of this "
           "backend stay in their process");
  }
  if ((request.flags & BP_EVENT_TIMING) != 0 && d.physical().timestamp_bits == 0) {
    refuse(BP_UNSUPPORTED,
           "event.create: flags has BP_EVENT_TIMING, and the device's queue has no timestamps");
  }
}

bp_status event_create(void* self, bp_device* handle, const bp_event_desc* desc,
                       bp_event** out_event) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "event.create");
    require(out_event, "event.create: out_event");
    const auto request =
        read_desc(desc, kFirstSize<bp_event_desc>, BP_STRUCT_EVENT_DESC, "event.create");
    check_event_request(d, request);
    auto e = std::make_unique<Event>(d, request.flags);
    d.add(e.get());
    *out_event = reinterpret_cast<bp_event*>(e.release());
    return BP_OK;
  });
}

bp_status event_destroy(void* self, bp_event* handle) {
  if (handle == nullptr) return BP_OK;
  return entry(self, [&](const Instance&) {
    Event& e = any_event_of(handle, "event.destroy");
    e.device->remove(&e);
    e.magic = 0;
    delete &e;
    return BP_OK;
  });
}

// Records the moment on the device; what fails there fails the moment.
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

bp_status event_record(void* self, bp_event* handle, bp_stream* stream_handle) {
  return entry(self, [&](const Instance&) {
    Event& e = event_of(handle, "event.record");
    const Stream& s = stream_of(stream_handle, "event.record");
    if ((e.flags & BP_EVENT_HOST_SIGNAL) != 0) {
      refuse(BP_INVALID_ARGUMENT, "event.record: the event is host-signalled");
    }
    s.lane->recorder().flush();  // Also if the record itself waits on the host.
    auto moment = std::make_shared<Moment>(s.lane->shared_engine());
    const bool is_timed = (e.flags & BP_EVENT_TIMING) != 0;
    // Under the lock, so that of two racing records the later submission is the one that counts.
    const std::lock_guard lock(e.mutex);
    const bp_status status = s.queue->submit_always(
        [lane = s.lane, moment, is_timed](const Outcome& before) {
          capture(*lane, *moment, is_timed, before);
        },
        false);
    if (status == BP_OK) e.moment = std::move(moment);
    return status;
  });
}

bp_status event_query(void* self, bp_event* handle, uint32_t* out_done) {
  return entry(self, [&](const Instance&) {
    Event& e = event_of(handle, "event.query");
    require(out_done, "event.query: out_done");
    const std::shared_ptr<Moment> moment = e.latest();
    *out_done = moment == nullptr || moment->is_done() ? 1 : 0;
    return BP_OK;
  });
}

bp_status event_synchronize(void* self, bp_event* handle, uint64_t timeout_ns) {
  return entry(self, [&](const Instance& i) -> bp_status {
    const std::shared_ptr<Moment> moment = event_of(handle, "event.synchronize").latest();
    if (moment == nullptr) return BP_OK;
    if (!moment->wait(timeout_ns)) return timed_out(i, "event.synchronize", timeout_ns);
    const Outcome& outcome = moment->submitted->outcome();
    return outcome.status == BP_OK ? bp_status{BP_OK} : i.fail(outcome.status, outcome.text);
  });
}

// The moment of a timing event that has completed, with its time.
std::shared_ptr<Moment> timed(Event& event, const std::string& name) {
  if ((event.flags & BP_EVENT_TIMING) == 0) {
    refuse(BP_INVALID_ARGUMENT, name + " was made without BP_EVENT_TIMING");
  }
  const std::shared_ptr<Moment> moment = event.latest();
  if (moment == nullptr || !moment->is_done()) {
    refuse(BP_INVALID_ARGUMENT, name + " has not completed");
  }
  if (moment->time == nullptr) {
    refuse(BP_INVALID_ARGUMENT, name + " has no time: it was not recorded, or its record failed");
  }
  return moment;
}

bp_status event_elapsed_ns(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
  return entry(self, [&](const Instance&) {
    Event& first = event_of(start, "event.elapsed_ns", "start");
    Event& last = event_of(end, "event.elapsed_ns", "end");
    require(out_elapsed_ns, "event.elapsed_ns: out_elapsed_ns");
    const std::shared_ptr<Moment> begin = timed(first, "event.elapsed_ns: start");
    const std::shared_ptr<Moment> finish = timed(last, "event.elapsed_ns: end");
    if (begin->engine != finish->engine) {
      refuse(BP_UNSUPPORTED,
             "event.elapsed_ns: start and end were recorded on two devices, whose clocks differ");
    }
    *out_elapsed_ns = finish->time->time_ns() - begin->time->time_ns();
    return BP_OK;
  });
}

bp_status event_signal(void* self, bp_event* handle, bp_status status) {
  return entry(self, [&](const Instance&) {
    Event& e = event_of(handle, "event.signal");
    if ((e.flags & BP_EVENT_HOST_SIGNAL) == 0) {
      refuse(BP_INVALID_ARGUMENT, "event.signal: the event is not host-signalled");
    }
    const char* const text = status == BP_OK ? "" : "the host signalled a failure";
    if (!e.latest()->submitted->complete({.status = status, .text = text})) {
      refuse(BP_INVALID_ARGUMENT, "event.signal: the event is signalled already");
    }
    return BP_OK;
  });
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
  const Clock::time_point begin = Clock::now();
  if (!submitted->wait(timeout_ns)) return false;
  return engine == nullptr || engine->recorder.wait(ticket, time_left(begin, timeout_ns));
}

bool wait_for_stream(const Stream& stream, uint64_t timeout_ns) {
  const std::shared_ptr<Queue> queue = stream.queue;
  const std::shared_ptr<Lane> lane = stream.lane;
  const Clock::time_point begin = Clock::now();
  lane->recorder().flush();
  if (!queue->wait(timeout_ns)) return false;
  return lane->recorder().wait(lane->last(), time_left(begin, timeout_ns));
}

// ---- Handles ------------------------------------------------------------------------------------

Event::Event(Device& its_device, bp_event_flags its_flags)
    : Handle(kEventMagic, its_device), flags(its_flags) {
  if ((flags & BP_EVENT_HOST_SIGNAL) != 0) moment = std::make_shared<Moment>(nullptr);
}

void require_alive(const Handle& handle, const char* call, const char* what) {
  if (handle.device->is_alive(handle.generation)) return;
  const std::string whose = std::string(call) + ": " + what + ": its device ";
  if (!handle.device->is_lost()) refuse(BP_DEVICE_LOST, whose + "was reset since it was made");
  refuse(BP_DEVICE_LOST, whose + "is lost, until it is reset" + handle.device->card().loss());
}

Stream& any_stream_of(bp_stream* handle, const char* call) {
  Stream* const s = stream_or_null(handle);
  if (s == nullptr) refuse_handle(call, "stream");
  return *s;
}

Event& any_event_of(bp_event* handle, const char* call) {
  Event* const e = event_or_null(handle);
  if (e == nullptr) refuse_handle(call, "event");
  return *e;
}

Stream& stream_of(bp_stream* handle, const char* call, const char* what) {
  Stream* const s = stream_or_null(handle);
  if (s == nullptr) refuse_handle(call, what);
  require_alive(*s, call, what);
  return *s;
}

Event& event_of(bp_event* handle, const char* call, const char* what) {
  Event* const e = event_or_null(handle);
  if (e == nullptr) refuse_handle(call, what);
  require_alive(*e, call, what);
  return *e;
}

constinit const bp_stream_ops kStreams{
    .struct_size = sizeof(bp_stream_ops),
    .struct_type = BP_STRUCT_STREAM_OPS,
    .create = stream_create,
    .default_stream = stream_default,
    .destroy = stream_destroy,
    .query = stream_query,
    .status = stream_status,
    .clear_failure = stream_clear_failure,
    .synchronize = stream_synchronize,
    .flush = stream_flush,
    .wait_event = stream_wait_event,
    .add_callback = stream_add_callback,
};

constinit const bp_event_ops kEvents{
    .struct_size = sizeof(bp_event_ops),
    .struct_type = BP_STRUCT_EVENT_OPS,
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .synchronize = event_synchronize,
    .elapsed_ns = event_elapsed_ns,
    .signal = event_signal,
};

}  // namespace bp::vulkan
