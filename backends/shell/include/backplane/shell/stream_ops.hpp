// The tables of streams and events. They make every check that needs no device, and write the error
// texts.
//
//   constinit const bp_stream_ops kStreams = StreamOps<Traits>::table();
//   constinit const bp_event_ops kEvents = EventOps<Traits>::table();
//
// An event keeps its latest moment, which is what a record captured, or the signal of the host.
// Each record makes a new moment; streams that wait for an earlier moment go on waiting for it.
//
// `Traits` describes the streams and events of a backend. For a backend whose streams are queues of
// queue.hpp, queue_streams.hpp has most of the traits. `Traits` has these types and static members:
//   Instance, Device      as in device_ops.hpp, and device_of(instance, handle, call)
//   Stream                can be copied; a copy keeps the work alive when the handle ends
//   Event                 derives from EventOf<Moment>, has `magic`, its `device`, and is made from
//                         (Device&, bp_event_flags); the device has add(event) and remove(event)
//
//   stream_of(handle, call), event_of(handle, call, what)
//                         what is behind a handle; throw StatusError for a handle of none, and for
//                         one of a lost device
//   any_stream_of(handle, call), any_event_of(handle, call)
//                         the same for destroy(), which takes a handle of a lost device
//
//   create_stream(device, desc), default_stream(device)   a Stream*
//   is_default_stream(stream), destroy_stream(stream)
//   is_idle(stream)                       whether all that was submitted has ended
//   wait(stream, timeout_ns)              false if it did not end in time
//   flush(stream)                         hands what is held back to the device
//   surface(stream)                       BP_OK, or the failure with its text in the error slot
//   admit(stream)                         BP_OK, or the refusal of a submission behind a failure
//   clear_failure(stream)
//   wait_for(stream, moment)              lets later work wait for a moment
//   add_callback(stream, callback, user_data)
//   wrap_native(device, native)           optional: a Stream*; NULL if `native` is none
//   native_handle(stream)                 optional: a void*
//   is_capturing(stream)                  optional: whether the device's own library captures it
//
//   callback_stream(device)               optional: a Stream* for the callback of an event, which
//                                         may hold it for long; else create_stream() makes it
//   check_event(device, flags)            optional: throws StatusError for what the device lacks
//   make_moment(event, stream)            the moment that record() is about to submit
//   record(stream, event, moment)         submits it
//   has_come(event, moment)               whether the moment has come
//   wait_until(event, moment, timeout_ns) false if it did not come in time
//   outcome(event, moment)                the Outcome of a moment that has come
//   signal_of(moment)                     the Point that the host completes
//   has_time(moment)                      optional: whether a moment that has come has a time
//   has_one_clock(begin, end)             optional: whether the times of two moments compare
//   elapsed_ns(event, begin, end)         the time between two moments; `event` is the first one's
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "backplane/shell/entry.hpp"
#include "backplane/shell/event_of.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/queue.hpp"
#include "backplane/stream.h"

namespace bp {

template <typename Traits>
class StreamOps {
 public:
  static constexpr bp_stream_ops table() {
    bp_stream_ops ops{.struct_size = sizeof(bp_stream_ops),
                      .struct_type = BP_STRUCT_STREAM_OPS,
                      .create = create,
                      .default_stream = default_stream,
                      .destroy = destroy,
                      .query = query,
                      .status = status,
                      .clear_failure = clear_failure,
                      .synchronize = synchronize,
                      .flush = flush,
                      .wait_event = wait_event,
                      .add_callback = add_callback};
    if constexpr (requires { Traits::wrap_native; }) ops.wrap_native = wrap_native;
    if constexpr (requires { Traits::native_handle; }) ops.native_handle = native_handle;
    if constexpr (requires { Traits::is_capturing; }) ops.is_capturing = is_capturing;
    return ops;
  }

 private:
  using Instance = typename Traits::Instance;
  using Device = typename Traits::Device;
  using Stream = typename Traits::Stream;

  static bp_status create(void* self, bp_device* handle, const bp_stream_desc* desc,
                          bp_stream** out_stream) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "stream.create");
      require(out_stream, "stream.create: out_stream");
      const auto request =
          read_desc(desc, kFirstSize<bp_stream_desc>, BP_STRUCT_STREAM_DESC, "stream.create");
      if (request.flags != BP_STREAM_DEFAULT) {
        refuse(BP_INVALID_ARGUMENT,
               "stream.create: flags is " + std::to_string(request.flags) + "; no flag is allowed");
      }
      *out_stream = reinterpret_cast<bp_stream*>(Traits::create_stream(d, request));
      return BP_OK;
    });
  }

  static bp_status default_stream(void* self, bp_device* handle, bp_stream** out_stream) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "stream.default_stream");
      require(out_stream, "stream.default_stream: out_stream");
      *out_stream = reinterpret_cast<bp_stream*>(Traits::default_stream(d));
      return BP_OK;
    });
  }

  static bp_status destroy(void* self, bp_stream* handle) {
    if (handle == nullptr) return BP_OK;
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Stream& s = Traits::any_stream_of(handle, "stream.destroy");
      if (Traits::is_default_stream(s)) {
        refuse(BP_INVALID_ARGUMENT, "stream.destroy: nobody can destroy the default stream");
      }
      Traits::destroy_stream(s);
      return BP_OK;
    });
  }

  static bp_status query(void* self, bp_stream* handle, uint32_t* out_done) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Stream& s = Traits::stream_of(handle, "stream.query");
      require(out_done, "stream.query: out_done");
      *out_done = Traits::is_idle(s) ? 1 : 0;
      return BP_OK;
    });
  }

  static bp_status status(void* self, bp_stream* handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      return Traits::surface(Traits::stream_of(handle, "stream.status"));
    });
  }

  static bp_status clear_failure(void* self, bp_stream* handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Traits::clear_failure(Traits::stream_of(handle, "stream.clear_failure"));
      return BP_OK;
    });
  }

  static bp_status synchronize(void* self, bp_stream* handle, uint64_t timeout_ns) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      // This is a copy, because another thread may destroy the handle meanwhile.
      Stream s = Traits::stream_of(handle, "stream.synchronize");
      if (!Traits::wait(s, timeout_ns)) refuse_timeout("stream.synchronize", timeout_ns);
      return Traits::surface(s);
    });
  }

  static bp_status flush(void* self, bp_stream* handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Traits::flush(Traits::stream_of(handle, "stream.flush"));
      return BP_OK;
    });
  }

  static bp_status wait_event(void* self, bp_stream* handle, bp_event* event_handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Stream& s = Traits::stream_of(handle, "stream.wait_event");
      auto moment = Traits::event_of(event_handle, "stream.wait_event", "event").latest();
      if (moment == nullptr) return Traits::admit(s);
      return Traits::wait_for(s, moment);
    });
  }

  static bp_status add_callback(void* self, bp_stream* handle, bp_stream_callback_fn* callback,
                                void* user_data) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Stream& s = Traits::stream_of(handle, "stream.add_callback");
      require(reinterpret_cast<const void*>(callback), "stream.add_callback: callback");
      return Traits::add_callback(s, callback, user_data);
    });
  }

  static bp_status wrap_native(void* self, bp_device* handle, void* native,
                               bp_stream** out_stream) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "stream.wrap_native");
      require(out_stream, "stream.wrap_native: out_stream");
      Stream* const s = Traits::wrap_native(d, native);
      if (s == nullptr) {
        refuse(BP_INVALID_ARGUMENT,
               "stream.wrap_native: native is NULL or no stream of this device that "
               "native_handle() gives");
      }
      *out_stream = reinterpret_cast<bp_stream*>(s);
      return BP_OK;
    });
  }

  static bp_status native_handle(void* self, bp_stream* handle, void** out_native) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Stream& s = Traits::stream_of(handle, "stream.native_handle");
      require(out_native, "stream.native_handle: out_native");
      *out_native = Traits::native_handle(s);
      return BP_OK;
    });
  }

  static bp_status is_capturing(void* self, bp_stream* handle, uint32_t* out_is_capturing) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Stream& s = Traits::stream_of(handle, "stream.is_capturing");
      require(out_is_capturing, "stream.is_capturing: out_is_capturing");
      *out_is_capturing = Traits::is_capturing(s) ? 1 : 0;
      return BP_OK;
    });
  }
};

template <typename Traits>
class EventOps {
 public:
  static constexpr bp_event_ops table() {
    return {.struct_size = sizeof(bp_event_ops),
            .struct_type = BP_STRUCT_EVENT_OPS,
            .create = create,
            .destroy = destroy,
            .record = record,
            .query = query,
            .synchronize = synchronize,
            .elapsed_ns = elapsed_ns,
            .signal = signal,
            .on_complete = on_complete};
  }

 private:
  using Instance = typename Traits::Instance;
  using Device = typename Traits::Device;
  using Event = typename Traits::Event;
  using Moment = typename Event::Moment;

  static constexpr bp_event_flags kFlags =
      BP_EVENT_TIMING | BP_EVENT_HOST_SIGNAL | BP_EVENT_EXPORTABLE;

  // shared_event_front.hpp serves events that processes share before they come here.
  static void check_request(Device& d, const bp_event_desc& request) {
    if ((request.flags & ~kFlags) != 0 || request.reserved != 0) {
      refuse(BP_INVALID_ARGUMENT, "event.create: flags is " + std::to_string(request.flags) +
                                      " and reserved is " + std::to_string(request.reserved) +
                                      "; allowed are bits " + std::to_string(kFlags) + ", and 0");
    }
    if constexpr (requires { Traits::check_event(d, request.flags); }) {
      Traits::check_event(d, request.flags);
    }
    if ((request.flags & BP_EVENT_EXPORTABLE) != 0) {
      refuse(BP_UNSUPPORTED,
             "event.create: flags has BP_EVENT_EXPORTABLE, and events of this device are not "
             "shared between processes");
    }
  }

  static bp_status create(void* self, bp_device* handle, const bp_event_desc* desc,
                          bp_event** out_event) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "event.create");
      require(out_event, "event.create: out_event");
      const auto request =
          read_desc(desc, kFirstSize<bp_event_desc>, BP_STRUCT_EVENT_DESC, "event.create");
      check_request(d, request);
      auto e = std::make_unique<Event>(d, request.flags);
      d.add(e.get());
      *out_event = reinterpret_cast<bp_event*>(e.release());
      return BP_OK;
    });
  }

  static bp_status destroy(void* self, bp_event* handle) {
    if (handle == nullptr) return BP_OK;
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Event& e = Traits::any_event_of(handle, "event.destroy");
      e.device->remove(&e);
      e.magic = 0;
      delete &e;
      return BP_OK;
    });
  }

  static bp_status record(void* self, bp_event* handle, bp_stream* stream_handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Event& e = Traits::event_of(handle, "event.record", "event");
      auto& s = Traits::stream_of(stream_handle, "event.record");
      if (e.is_signalled()) {
        refuse(BP_INVALID_ARGUMENT, "event.record: only the host signals this event");
      }
      std::shared_ptr<Moment> moment = Traits::make_moment(e, s);
      // The record is submitted under the lock. If two records race, the later submission is then
      // the latest one.
      const std::lock_guard lock(e.mutex);
      const bp_status status = Traits::record(s, e, moment);
      if (status == BP_OK) e.moment = std::move(moment);
      return status;
    });
  }

  static bp_status query(void* self, bp_event* handle, uint32_t* out_done) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Event& e = Traits::event_of(handle, "event.query", "event");
      require(out_done, "event.query: out_done");
      const std::shared_ptr<Moment> moment = e.latest();
      *out_done = moment == nullptr || Traits::has_come(e, *moment) ? 1 : 0;
      return BP_OK;
    });
  }

  static bp_status synchronize(void* self, bp_event* handle, uint64_t timeout_ns) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Event& e = Traits::event_of(handle, "event.synchronize", "event");
      const std::shared_ptr<Moment> moment = e.latest();
      if (moment == nullptr) return BP_OK;
      if (!Traits::wait_until(e, *moment, timeout_ns)) {
        refuse_timeout("event.synchronize", timeout_ns);
      }
      const Outcome outcome = Traits::outcome(e, *moment);
      if (outcome.status == BP_OK) return BP_OK;
      return i.host->set_error(i.host->self, outcome.status, outcome.text.c_str());
    });
  }

  // Returns the moment of an event if it has come and has a time. `name` names the event in error
  // texts.
  static std::shared_ptr<Moment> timed_moment(Event& e, const std::string& name) {
    if (!e.is_timed()) refuse(BP_INVALID_ARGUMENT, name + " was made without BP_EVENT_TIMING");
    std::shared_ptr<Moment> moment = e.latest();
    if (moment == nullptr || !Traits::has_come(e, *moment)) {
      refuse(BP_INVALID_ARGUMENT, name + " has not completed");
    }
    if constexpr (requires { Traits::has_time(*moment); }) {
      if (!Traits::has_time(*moment)) {
        refuse(BP_INVALID_ARGUMENT,
               name + " has no time: it was not recorded, or its record failed");
      }
    }
    return moment;
  }

  static bp_status elapsed_ns(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Event& first = Traits::event_of(start, "event.elapsed_ns", "start");
      Event& last = Traits::event_of(end, "event.elapsed_ns", "end");
      require(out_elapsed_ns, "event.elapsed_ns: out_elapsed_ns");
      const auto begin = timed_moment(first, "event.elapsed_ns: start");
      const auto finish = timed_moment(last, "event.elapsed_ns: end");
      if constexpr (requires { Traits::has_one_clock(*begin, *finish); }) {
        if (!Traits::has_one_clock(*begin, *finish)) {
          refuse(BP_UNSUPPORTED,
                 "event.elapsed_ns: start and end were recorded on two devices, whose clocks "
                 "differ");
        }
      }
      *out_elapsed_ns = Traits::elapsed_ns(first, *begin, *finish);
      return BP_OK;
    });
  }

  static bp_status signal(void* self, bp_event* handle, bp_status status) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Event& e = Traits::event_of(handle, "event.signal", "event");
      if (!e.is_signalled()) {
        refuse(BP_INVALID_ARGUMENT, "event.signal: the event is not host-signalled");
      }
      const char* const text = status == BP_OK ? "" : "the host signalled a failure";
      if (!Traits::signal_of(*e.latest()).complete({.status = status, .text = text})) {
        refuse(BP_INVALID_ARGUMENT, "event.signal: the event is signalled already");
      }
      return BP_OK;
    });
  }

  // Returns a stream whose callback holds no other stream up.
  static auto callback_stream(Device& d) {
    if constexpr (requires { Traits::callback_stream(d); })
      return Traits::callback_stream(d);
    else
      return Traits::create_stream(d, {});
  }

  // A stream of its own waits for the event, so that the callback holds nobody else's work. The
  // handle of the stream ends at once; its work goes on.
  static bp_status on_complete(void* self, bp_event* handle, bp_stream_callback_fn* callback,
                               void* user_data) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Event& e = Traits::event_of(handle, "event.on_complete", "event");
      require(reinterpret_cast<const void*>(callback), "event.on_complete: callback");
      const std::shared_ptr<Moment> moment = e.latest();
      using Stream = typename Traits::Stream;
      const auto end = [](Stream* stream) { Traits::destroy_stream(*stream); };
      const std::unique_ptr<Stream, decltype(end)> own(callback_stream(*e.device), end);
      if (moment != nullptr) static_cast<void>(Traits::wait_for(*own, moment));
      return Traits::add_callback(*own, callback, user_data);
    });
  }
};

}  // namespace bp
