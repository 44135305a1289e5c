#include "backends/cpu/stream.hpp"

#include <cstddef>
#include <string>

#include "backends/cpu/device.hpp"
#include "backends/cpu/full_instance.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::cpu {
namespace {

constexpr bp_event_flags kEventFlags = BP_EVENT_TIMING | BP_EVENT_HOST_SIGNAL | BP_EVENT_EXPORTABLE;

// Refuses the argument `what` of a call: bad("stream.query", "stream").
bp_status bad(const Instance& i, const char* call, const char* what) {
  return i.fail(BP_INVALID_ARGUMENT,
                std::string(call) + ": " + what + " is NULL or not one of this backend");
}

bp_status timed_out(const Instance& i, const char* call, uint64_t timeout_ns) {
  return i.fail(BP_TIMEOUT, std::string(call) + ": the work did not end within " +
                                std::to_string(timeout_ns) + " ns");
}

// ---- Streams ------------------------------------------------------------------------------------

bp_status stream_create(void* self, bp_device* handle, const bp_stream_desc* desc,
                        bp_stream** out_stream) {
  const Instance& i = instance(self);
  Device* const d = device(i, handle);
  if (d == nullptr) return bad(i, "stream.create", "device");
  if (out_stream == nullptr) return bad(i, "stream.create", "out_stream");
  return guarded(*i.host, [&] {
    const auto request =
        read_desc(desc, kFirstSize<bp_stream_desc>, BP_STRUCT_STREAM_DESC, "stream.create");
    if (request.flags != BP_STREAM_DEFAULT) {
      return i.fail(
          BP_INVALID_ARGUMENT,
          "stream.create: flags is " + std::to_string(request.flags) + ", and no flag is known");
    }
    *out_stream = reinterpret_cast<bp_stream*>(d->create_stream());
    return bp_status{BP_OK};
  });
}

bp_status stream_default(void* self, bp_device* handle, bp_stream** out_stream) {
  const Instance& i = instance(self);
  Device* const d = device(i, handle);
  if (d == nullptr) return bad(i, "stream.default_stream", "device");
  if (out_stream == nullptr) return bad(i, "stream.default_stream", "out_stream");
  *out_stream = reinterpret_cast<bp_stream*>(d->default_stream());
  return BP_OK;
}

bp_status stream_destroy(void* self, bp_stream* handle) {
  const Instance& i = instance(self);
  if (handle == nullptr) return BP_OK;
  Stream* const s = stream(handle);
  if (s == nullptr) return bad(i, "stream.destroy", "stream");
  if (s == i.device->default_stream()) {
    return i.fail(BP_INVALID_ARGUMENT, "stream.destroy: the default stream is lent");
  }
  return guarded(*i.host, [&] {
    full_instance(self).native_streams.forget(s);
    i.device->destroy_stream(s);
    return bp_status{BP_OK};
  });
}

bp_status stream_query(void* self, bp_stream* handle, uint32_t* out_done) {
  const Instance& i = instance(self);
  const Queue* const q = queue(handle);
  if (q == nullptr) return bad(i, "stream.query", "stream");
  if (out_done == nullptr) return bad(i, "stream.query", "out_done");
  *out_done = q->is_idle() ? 1 : 0;
  return BP_OK;
}

bp_status stream_status(void* self, bp_stream* handle) {
  const Instance& i = instance(self);
  const Queue* const q = queue(handle);
  if (q == nullptr) return bad(i, "stream.status", "stream");
  return guarded(*i.host, [&] { return q->surface(); });
}

bp_status stream_clear_failure(void* self, bp_stream* handle) {
  const Instance& i = instance(self);
  Queue* const q = queue(handle);
  if (q == nullptr) return bad(i, "stream.clear_failure", "stream");
  q->clear_failure();
  return BP_OK;
}

bp_status stream_synchronize(void* self, bp_stream* handle, uint64_t timeout_ns) {
  const Instance& i = instance(self);
  Queue* const q = queue(handle);
  if (q == nullptr) return bad(i, "stream.synchronize", "stream");
  return guarded(*i.host, [&] {
    if (!q->wait(timeout_ns)) return timed_out(i, "stream.synchronize", timeout_ns);
    return q->surface();
  });
}

// Nothing is ever held back.
bp_status stream_flush(void* self, bp_stream* handle) {
  const Instance& i = instance(self);
  return queue(handle) == nullptr ? bad(i, "stream.flush", "stream") : bp_status{BP_OK};
}

bp_status stream_wait_event(void* self, bp_stream* handle, bp_event* event_handle) {
  const Instance& i = instance(self);
  Queue* const q = queue(handle);
  Event* const e = event(event_handle);
  if (q == nullptr) return bad(i, "stream.wait_event", "stream");
  if (e == nullptr) return bad(i, "stream.wait_event", "event");
  return guarded(*i.host, [&] {
    std::shared_ptr<Point> point = e->latest();
    return point == nullptr ? q->surface() : q->wait_for(std::move(point));
  });
}

bp_status stream_add_callback(void* self, bp_stream* handle, bp_stream_callback_fn* callback,
                              void* user_data) {
  const Instance& i = instance(self);
  Queue* const q = queue(handle);
  if (q == nullptr) return bad(i, "stream.add_callback", "stream");
  if (callback == nullptr) return bad(i, "stream.add_callback", "callback");
  return guarded(*i.host, [&] {
    return q->submit_always(
        [callback, user_data](const Outcome& before) { callback(user_data, before.status); },
        false);
  });
}

bp_status stream_wrap_native(void* self, bp_device* handle, void* native, bp_stream** out_stream) {
  const Instance& i = instance(self);
  if (device(i, handle) == nullptr) return bad(i, "stream.wrap_native", "device");
  if (out_stream == nullptr) return bad(i, "stream.wrap_native", "out_stream");
  return guarded(*i.host, [&] {
    Stream* const s = full_instance(self).native_streams.wrap(native);
    if (s == nullptr) {
      return i.fail(BP_INVALID_ARGUMENT,
                    "stream.wrap_native: native is NULL or no stream that native_handle() gave");
    }
    *out_stream = reinterpret_cast<bp_stream*>(s);
    return bp_status{BP_OK};
  });
}

bp_status stream_native_handle(void* self, bp_stream* handle, void** out_native) {
  const Instance& i = instance(self);
  Stream* const s = stream(handle);
  if (s == nullptr) return bad(i, "stream.native_handle", "stream");
  if (out_native == nullptr) return bad(i, "stream.native_handle", "out_native");
  return guarded(*i.host, [&] {
    *out_native = full_instance(self).native_streams.lend(s->queue);
    return bp_status{BP_OK};
  });
}

// ---- Events -------------------------------------------------------------------------------------

bp_status event_create(void* self, bp_device* handle, const bp_event_desc* desc,
                       bp_event** out_event) {
  const Instance& i = instance(self);
  Device* const d = device(i, handle);
  if (d == nullptr) return bad(i, "event.create", "device");
  if (out_event == nullptr) return bad(i, "event.create", "out_event");
  return guarded(*i.host, [&] {
    const auto request =
        read_desc(desc, kFirstSize<bp_event_desc>, BP_STRUCT_EVENT_DESC, "event.create");
    if ((request.flags & ~kEventFlags) != 0 || request.reserved != 0) {
      return i.fail(BP_INVALID_ARGUMENT, "event.create: flags is " + std::to_string(request.flags) +
                                             ", reserved is " + std::to_string(request.reserved) +
                                             "; known are bits " + std::to_string(kEventFlags) +
                                             ", and 0");
    }
    if ((request.flags & BP_EVENT_EXPORTABLE) != 0) {
      return i.fail(BP_UNSUPPORTED, "event.create: events of this device cannot be exported");
    }
    auto e = std::make_unique<Event>();
    e->flags = request.flags;
    if ((e->flags & BP_EVENT_HOST_SIGNAL) != 0) e->point = e->make_point();
    d->add(e.get());
    *out_event = reinterpret_cast<bp_event*>(e.release());
    return bp_status{BP_OK};
  });
}

bp_status event_destroy(void* self, bp_event* handle) {
  const Instance& i = instance(self);
  if (handle == nullptr) return BP_OK;
  Event* const e = event(handle);
  if (e == nullptr) return bad(i, "event.destroy", "event");
  i.device->remove(e);
  e->magic = 0;
  delete e;
  return BP_OK;
}

bp_status event_record(void* self, bp_event* handle, bp_stream* stream_handle) {
  const Instance& i = instance(self);
  Event* const e = event(handle);
  Queue* const q = queue(stream_handle);
  if (e == nullptr) return bad(i, "event.record", "event");
  if (q == nullptr) return bad(i, "event.record", "stream");
  if ((e->flags & BP_EVENT_HOST_SIGNAL) != 0) {
    return i.fail(BP_INVALID_ARGUMENT, "event.record: the event is host-signalled");
  }
  return guarded(*i.host, [&] {
    std::shared_ptr<Point> point = e->make_point();
    // Under the lock, so that of two racing records the later submission is the one that counts.
    const std::lock_guard lock(e->mutex);
    const bp_status status =
        q->submit_always([point](const Outcome& before) { point->complete(before); }, true);
    if (status == BP_OK) e->point = std::move(point);
    return status;
  });
}

bp_status event_query(void* self, bp_event* handle, uint32_t* out_done) {
  const Instance& i = instance(self);
  Event* const e = event(handle);
  if (e == nullptr) return bad(i, "event.query", "event");
  if (out_done == nullptr) return bad(i, "event.query", "out_done");
  const std::shared_ptr<Point> point = e->latest();
  *out_done = point == nullptr || point->is_complete() ? 1 : 0;
  return BP_OK;
}

bp_status event_synchronize(void* self, bp_event* handle, uint64_t timeout_ns) {
  const Instance& i = instance(self);
  Event* const e = event(handle);
  if (e == nullptr) return bad(i, "event.synchronize", "event");
  return guarded(*i.host, [&] {
    const std::shared_ptr<Point> point = e->latest();
    if (point == nullptr) return bp_status{BP_OK};
    if (!point->wait(timeout_ns)) return timed_out(i, "event.synchronize", timeout_ns);
    const Outcome& outcome = point->outcome();
    return outcome.status == BP_OK ? bp_status{BP_OK} : i.fail(outcome.status, outcome.text);
  });
}

bp_status event_elapsed_ns(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
  const Instance& i = instance(self);
  Event* const events[] = {event(start), event(end)};
  if (events[0] == nullptr) return bad(i, "event.elapsed_ns", "start");
  if (events[1] == nullptr) return bad(i, "event.elapsed_ns", "end");
  if (out_elapsed_ns == nullptr) return bad(i, "event.elapsed_ns", "out_elapsed_ns");
  return guarded(*i.host, [&] {
    int64_t times_ns[2] = {};
    for (int k = 0; k < 2; ++k) {
      const std::string name = k == 0 ? "event.elapsed_ns: start" : "event.elapsed_ns: end";
      if ((events[k]->flags & BP_EVENT_TIMING) == 0) {
        return i.fail(BP_INVALID_ARGUMENT, name + " was made without BP_EVENT_TIMING");
      }
      const std::shared_ptr<Point> point = events[k]->latest();
      if (point == nullptr || !point->is_complete()) {
        return i.fail(BP_INVALID_ARGUMENT, name + " has not completed");
      }
      times_ns[k] = point->time_ns();
    }
    *out_elapsed_ns = times_ns[1] - times_ns[0];
    return bp_status{BP_OK};
  });
}

bp_status event_signal(void* self, bp_event* handle, bp_status status) {
  const Instance& i = instance(self);
  Event* const e = event(handle);
  if (e == nullptr) return bad(i, "event.signal", "event");
  if ((e->flags & BP_EVENT_HOST_SIGNAL) == 0) {
    return i.fail(BP_INVALID_ARGUMENT, "event.signal: the event is not host-signalled");
  }
  return guarded(*i.host, [&] {
    const char* const text = status == BP_OK ? "" : "the host signalled a failure";
    if (!e->latest()->complete({status, text})) {
      return i.fail(BP_INVALID_ARGUMENT, "event.signal: the event is signalled already");
    }
    return bp_status{BP_OK};
  });
}

}  // namespace

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

}  // namespace bp::cpu
