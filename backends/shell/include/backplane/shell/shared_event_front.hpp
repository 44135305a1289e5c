// Entries that the host calls instead of a backend's own. They give calls on an event that
// processes share to the SharedEvents of the backend, and pass every other call to the backend's
// own entry.
//
//   offer_shared_events<Traits>(instance, "backplane.sim.event");
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backplane/shell/first_size.hpp"
#include "backplane/shell/shared_events.hpp"

namespace bp {

template <typename Instance, typename Whole>
SharedEvents& shared_events_of(void* self) {
  return *static_cast<Whole*>(static_cast<Instance*>(self))->shared_events;
}

// `kSharedEventsOf` returns the shared events for the `self` of the backend's tables.
template <SharedEvents& (*kSharedEventsOf)(void* self)>
class SharedEventFront {
 public:
  // Replaces the entries that shared events concern. SharedEvents holds a copy of the original
  // tables.
  static void put(bp_stream_ops& streams, bp_event_ops& events) {
    streams.wait_event = wait_event;
    events.create = create;
    events.destroy = turned<&SharedEvents::destroy, &bp_event_ops::destroy>;
    events.record = turned<&SharedEvents::record, &bp_event_ops::record>;
    events.query = turned<&SharedEvents::query, &bp_event_ops::query>;
    events.synchronize = turned<&SharedEvents::synchronize, &bp_event_ops::synchronize>;
    events.elapsed_ns = elapsed_ns;
    events.on_complete = turned<&SharedEvents::on_complete, &bp_event_ops::on_complete>;
    events.export_event = always<&SharedEvents::export_event>;
    events.import_event = always<&SharedEvents::import_event>;
  }

 private:
  template <auto kCall, typename... Args>
  static bp_status always(void* self, Args... args) {
    SharedEvents& shared = kSharedEventsOf(self);
    return guarded(*shared.backend().host, [&] { return (shared.*kCall)(args...); });
  }

  template <auto kCall, auto kEntry, typename... Args>
  static bp_status turned(void* self, bp_event* event, Args... args) {
    SharedEvents& shared = kSharedEventsOf(self);
    if (!shared.is_shared(event)) return (shared.backend().events.*kEntry)(self, event, args...);
    return guarded(*shared.backend().host, [&] { return (shared.*kCall)(event, args...); });
  }

  static bp_status wait_event(void* self, bp_stream* stream, bp_event* event) {
    SharedEvents& shared = kSharedEventsOf(self);
    if (!shared.is_shared(event)) return shared.backend().streams.wait_event(self, stream, event);
    return guarded(*shared.backend().host, [&] { return shared.wait_event(stream, event); });
  }

  static bp_status elapsed_ns(void* self, bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
    SharedEvents& shared = kSharedEventsOf(self);
    if (!shared.is_shared(start) && !shared.is_shared(end)) {
      return shared.backend().events.elapsed_ns(self, start, end, out_elapsed_ns);
    }
    return guarded(*shared.backend().host,
                   [&] { return shared.elapsed_ns(start, end, out_elapsed_ns); });
  }

  // Makes a shared event if the desc asks for one. The backend checks every other desc.
  static bp_status create(void* self, bp_device* device, const bp_event_desc* desc,
                          bp_event** out_event) {
    SharedEvents& shared = kSharedEventsOf(self);
    const bp_host& host = *shared.backend().host;
    constexpr uint32_t kHasFlags = offsetof(bp_event_desc, flags) + sizeof(bp_event_flags);
    if (desc == nullptr || desc->struct_size < kHasFlags ||
        (desc->flags & BP_EVENT_EXPORTABLE) == 0) {
      return shared.backend().events.create(self, device, desc, out_event);
    }
    if (out_event == nullptr) {
      return host.set_error(host.self, BP_INVALID_ARGUMENT, "event.create: out_event is NULL");
    }
    return guarded(host, [&] {
      const auto request =
          read_desc(desc, kFirstSize<bp_event_desc>, BP_STRUCT_EVENT_DESC, "event.create");
      return shared.create(device, request, out_event);
    });
  }
};

// Makes the shared events of an instance whose tables are complete, and puts them in front of the
// tables of streams and events. `kind` names the files behind descriptors.
//
// `Traits` has device_of() and event_of() as in stream_ops.hpp, for events whose moments are
// Points, and Instance, the `self` of the tables. `Whole` has `shared_events`, and is that instance
// or derives from it.
template <typename Traits, typename Whole>
void offer_shared_events(Whole& i, const char* kind) {
  using Instance = typename Traits::Instance;
  SharedEventBackend backend{
      .host = i.host,
      .streams = i.streams,
      .events = i.events,
      .kind = kind,
      .check_device =
          [](void* self, bp_device* handle, const char* call) {
            static_cast<void>(Traits::device_of(*static_cast<Instance*>(self), handle, call));
          },
      .check_event =
          [](void*, bp_event* handle, const char* call) {
            static_cast<void>(Traits::event_of(handle, call, "event"));
          },
      .end_event =
          [](void*, bp_event* handle, bp_status status, const std::string& text) {
            Traits::event_of(handle, "event.signal", "event")
                .latest()
                ->complete({.status = status, .text = text});
          }};
  i.shared_events = std::make_unique<SharedEvents>(std::move(backend));
  SharedEventFront<shared_events_of<Instance, Whole>>::put(i.streams, i.events);
}

}  // namespace bp
