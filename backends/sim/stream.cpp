#include "backends/sim/stream.hpp"

#include <cstddef>
#include <string>

#include "backends/sim/entry.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::sim {
namespace {

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
    s.device->destroy_stream(&s);
    return BP_OK;
  });
}

bp_status stream_query(void* self, bp_stream* handle, uint32_t* out_done) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "stream.query");
    require(out_done, "stream.query: out_done");
    *out_done = s.queue->is_idle() ? 1 : 0;
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
    const std::shared_ptr<Queue> queue = stream_of(handle, "stream.synchronize").queue;
    if (!queue->wait(timeout_ns)) return timed_out(i, "stream.synchronize", timeout_ns);
    return queue->surface();
  });
}

// Nothing is ever held back.
bp_status stream_flush(void* self, bp_stream* handle) {
  return entry(self, [&](const Instance&) {
    stream_of(handle, "stream.flush");
    return BP_OK;
  });
}

bp_status stream_wait_event(void* self, bp_stream* handle, bp_event* event_handle) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "stream.wait_event");
    std::shared_ptr<Point> point = event_of(event_handle, "stream.wait_event").latest();
    return point == nullptr ? s.queue->surface() : s.queue->wait_for(std::move(point));
  });
}

bp_status stream_add_callback(void* self, bp_stream* handle, bp_stream_callback_fn* callback,
                              void* user_data) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "stream.add_callback");
    require(reinterpret_cast<const void*>(callback), "stream.add_callback: callback");
    return s.queue->submit_always(
        [conduct = s.conduct, callback, user_data](const Outcome& before) {
          conduct->pause();
          callback(user_data, before.status);
        },
        false);
  });
}

// The device's own library knows a stream by its queue.
bp_status stream_wrap_native(void* self, bp_device* handle, void* native, bp_stream** out_stream) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "stream.wrap_native");
    require(out_stream, "stream.wrap_native: out_stream");
    Stream* const s = d.wrap_stream(native);
    if (s == nullptr) {
      refuse(BP_INVALID_ARGUMENT,
             "stream.wrap_native: native is NULL or no stream of this device that native_handle() "
             "gives");
    }
    *out_stream = reinterpret_cast<bp_stream*>(s);
    return BP_OK;
  });
}

bp_status stream_native_handle(void* self, bp_stream* handle, void** out_native) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "stream.native_handle");
    require(out_native, "stream.native_handle: out_native");
    *out_native = s.queue.get();
    return BP_OK;
  });
}

// ---- Events -------------------------------------------------------------------------------------

bp_status event_create(void* self, bp_device* handle, const bp_event_desc* desc,
                       bp_event** out_event) {
  return entry(self, [&](const Instance& i) {
    Device& d = device_of(i, handle, "event.create");
    require(out_event, "event.create: out_event");
    const auto request =
        read_desc(desc, kFirstSize<bp_event_desc>, BP_STRUCT_EVENT_DESC, "event.create");
    if ((request.flags & ~kEventFlags) != 0 || request.reserved != 0) {
      refuse(BP_INVALID_ARGUMENT, "event.create: flags is " + std::to_string(request.flags) +
                                      ", reserved is " + std::to_string(request.reserved) +
                                      "; known are bits " + std::to_string(kEventFlags) +
                                      ", and 0");
    }
    if ((request.flags & BP_EVENT_EXPORTABLE) != 0) {
      refuse(BP_UNSUPPORTED,
             "event.create: flags has BP_EVENT_EXPORTABLE, and option sharing is no");
    }
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

bp_status event_record(void* self, bp_event* handle, bp_stream* stream_handle) {
  return entry(self, [&](const Instance&) {
    Event& e = event_of(handle, "event.record");
    const Stream& s = stream_of(stream_handle, "event.record");
    if ((e.flags & BP_EVENT_HOST_SIGNAL) != 0) {
      refuse(BP_INVALID_ARGUMENT, "event.record: the event is host-signalled");
    }
    std::shared_ptr<Point> point = e.make_point();
    // Under the lock, so that of two racing records the later submission is the one that counts.
    const std::lock_guard lock(e.mutex);
    const bp_status status = s.queue->submit_always(
        [conduct = s.conduct, point](const Outcome& before) {
          conduct->pause();
          point->complete(before);
        },
        false);
    if (status == BP_OK) e.point = std::move(point);
    return status;
  });
}

bp_status event_query(void* self, bp_event* handle, uint32_t* out_done) {
  return entry(self, [&](const Instance&) {
    Event& e = event_of(handle, "event.query");
    require(out_done, "event.query: out_done");
    const std::shared_ptr<Point> point = e.latest();
    *out_done = point == nullptr || point->is_complete() ? 1 : 0;
    return BP_OK;
  });
}

bp_status event_synchronize(void* self, bp_event* handle, uint64_t timeout_ns) {
  return entry(self, [&](const Instance& i) -> bp_status {
    const std::shared_ptr<Point> point = event_of(handle, "event.synchronize").latest();
    if (point == nullptr) return BP_OK;
    if (!point->wait(timeout_ns)) return timed_out(i, "event.synchronize", timeout_ns);
    const Outcome& outcome = point->outcome();
    return outcome.status == BP_OK ? bp_status{BP_OK} : i.fail(outcome.status, outcome.text);
  });
}

// The host's time at which a timing event completed.
int64_t completion_ns(Event& event, const std::string& name) {
  if ((event.flags & BP_EVENT_TIMING) == 0) {
    refuse(BP_INVALID_ARGUMENT, name + " was made without BP_EVENT_TIMING");
  }
  const std::shared_ptr<Point> point = event.latest();
  if (point == nullptr || !point->is_complete()) {
    refuse(BP_INVALID_ARGUMENT, name + " has not completed");
  }
  return point->time_ns();
}

bp_status event_elapsed_ns(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
  return entry(self, [&](const Instance&) {
    Event& first = event_of(start, "event.elapsed_ns", "start");
    Event& last = event_of(end, "event.elapsed_ns", "end");
    require(out_elapsed_ns, "event.elapsed_ns: out_elapsed_ns");
    const int64_t begin_ns = completion_ns(first, "event.elapsed_ns: start");
    const int64_t end_ns = completion_ns(last, "event.elapsed_ns: end");
    const DeviceClock& clock = first.device->clock();
    *out_elapsed_ns = clock.at_host_time(end_ns) - clock.at_host_time(begin_ns);
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
    if (!e.latest()->complete({.status = status, .text = text})) {
      refuse(BP_INVALID_ARGUMENT, "event.signal: the event is signalled already");
    }
    return BP_OK;
  });
}

}  // namespace

// ---- Handles ------------------------------------------------------------------------------------

Event::Event(Device& its_device, bp_event_flags its_flags)
    : Handle(kEventMagic, its_device), flags(its_flags) {
  if ((flags & BP_EVENT_HOST_SIGNAL) != 0) point = make_point();
}

void require_alive(const Handle& handle, const char* call, const char* what) {
  if (handle.device->is_alive(handle.generation)) return;
  const char* const why = handle.device->is_lost() ? " belongs to a device that is lost"
                                                   : " was made before its device was reset";
  refuse(BP_DEVICE_LOST, std::string(call) + ": " + what + why);
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
    .wrap_native = stream_wrap_native,
    .native_handle = stream_native_handle,
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

}  // namespace bp::sim
