// Entries that the host calls instead of a backend's own. They give work for a capturing stream to
// the Captures of the backend, and pass every other call to the backend's own entry.
//
//   offer_captures<Traits>(instance);
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "backplane/shell/capture.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/lookup.hpp"

namespace bp {

// The name of an entry, as a template argument.
template <size_t kSize>
struct EntryName {
  constexpr EntryName(const char (&text)[kSize]) { std::copy_n(text, kSize, value); }
  char value[kSize];
};

// `kCapturesOf` returns the captures for the `self` of the backend's tables.
template <Captures& (*kCapturesOf)(void* self)>
class CaptureFront {
 public:
  // Replaces the entries that a capture concerns. Captures holds a copy of the original tables.
  static void put(bp_stream_ops& streams, bp_event_ops& events, bp_allocator_ops& memory) {
    put_streams(streams);
    put_events(events);
    put_memory(memory);
  }

 private:
  // Replaces an entry of `streams` whose first argument is a stream, and which is not legal while
  // that stream captures.
  template <EntryName kName, auto kEntry, typename... Args>
  static bp_status refused_stream(void* self, bp_stream* stream, Args... args) {
    Captures& c = kCapturesOf(self);
    if (c.is_capturing(stream)) return c.refuse(kName.value);
    return (c.backend().streams.*kEntry)(self, stream, args...);
  }

  // Replaces an entry of `events` that is not legal on an event whose latest record was captured.
  template <EntryName kName, auto kEntry, typename... Args>
  static bp_status refused_event(void* self, bp_event* event, Args... args) {
    Captures& c = kCapturesOf(self);
    if (c.is_captured(event)) return c.refuse_captured(kName.value);
    return (c.backend().events.*kEntry)(self, event, args...);
  }

  // Replaces an entry of `memory` that is not legal on a capturing stream.
  template <EntryName kName, auto kEntry, typename... Args>
  static bp_status refused_copy(void* self, bp_stream* stream, Args... args) {
    Captures& c = kCapturesOf(self);
    if (c.is_capturing(stream)) return c.refuse(kName.value);
    return (c.backend().memory.*kEntry)(self, stream, args...);
  }

  static void put_streams(bp_stream_ops& streams) {
    streams.destroy = refused_stream<"stream.destroy", &bp_stream_ops::destroy>;
    streams.query = refused_stream<"stream.query", &bp_stream_ops::query>;
    streams.status = refused_stream<"stream.status", &bp_stream_ops::status>;
    streams.clear_failure = refused_stream<"stream.clear_failure", &bp_stream_ops::clear_failure>;
    streams.synchronize = refused_stream<"stream.synchronize", &bp_stream_ops::synchronize>;
    streams.flush = refused_stream<"stream.flush", &bp_stream_ops::flush>;
    streams.add_callback = refused_stream<"stream.add_callback", &bp_stream_ops::add_callback>;
    if (streams.native_handle != nullptr) {
      streams.native_handle = refused_stream<"stream.native_handle", &bp_stream_ops::native_handle>;
    }
    streams.wait_event = [](void* self, bp_stream* stream, bp_event* event) -> bp_status {
      Captures& c = kCapturesOf(self);
      if (c.is_capturing(stream) || c.is_captured(event)) {
        return guarded(*c.backend().host, [&] { return c.wait_event(stream, event); });
      }
      return c.backend().streams.wait_event(self, stream, event);
    };
    streams.is_capturing = [](void* self, bp_stream* stream,
                              uint32_t* out_is_capturing) -> bp_status {
      Captures& c = kCapturesOf(self);
      const bp_host& host = *c.backend().host;
      if (c.backend().queue_of(stream) == nullptr || out_is_capturing == nullptr) {
        return host.set_error(host.self, BP_INVALID_ARGUMENT,
                              "stream.is_capturing: stream is not one of this backend, or "
                              "out_is_capturing is NULL");
      }
      if (!c.is_capturing(stream) && c.backend().streams.is_capturing != nullptr) {
        return c.backend().streams.is_capturing(self, stream, out_is_capturing);
      }
      *out_is_capturing = c.is_capturing(stream) ? 1 : 0;
      return BP_OK;
    };
  }

  static void put_events(bp_event_ops& events) {
    events.query = refused_event<"event.query", &bp_event_ops::query>;
    events.synchronize = refused_event<"event.synchronize", &bp_event_ops::synchronize>;
    if (events.on_complete != nullptr) {
      events.on_complete = refused_event<"event.on_complete", &bp_event_ops::on_complete>;
    }
    events.record = [](void* self, bp_event* event, bp_stream* stream) -> bp_status {
      Captures& c = kCapturesOf(self);
      if (c.is_capturing(stream)) {
        return guarded(*c.backend().host, [&] { return c.record(event, stream); });
      }
      const bp_status status = c.backend().events.record(self, event, stream);
      if (status == BP_OK && c.is_captured(event)) c.forget(event);
      return status;
    };
    events.elapsed_ns = [](void* self, bp_event* start, bp_event* end,
                           int64_t* out_elapsed_ns) -> bp_status {
      Captures& c = kCapturesOf(self);
      if (c.is_captured(start) || c.is_captured(end)) return c.refuse_captured("event.elapsed_ns");
      return c.backend().events.elapsed_ns(self, start, end, out_elapsed_ns);
    };
    events.destroy = [](void* self, bp_event* event) -> bp_status {
      Captures& c = kCapturesOf(self);
      if (c.is_captured(event)) c.forget(event);
      return c.backend().events.destroy(self, event);
    };
  }

  static void put_memory(bp_allocator_ops& memory) {
    memory.copy_from_host = refused_copy<"copy_from_host", &bp_allocator_ops::copy_from_host>;
    memory.copy_to_host = refused_copy<"copy_to_host", &bp_allocator_ops::copy_to_host>;
    memory.copy = copy<"copy", Work::Kind::kCopy, &bp_allocator_ops::copy>;
    if (memory.copy_peer != nullptr) {
      memory.copy_peer = copy<"copy_peer", Work::Kind::kCopyPeer, &bp_allocator_ops::copy_peer>;
    }
    memory.fill = [](void* self, bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                     uint64_t size_bytes) -> bp_status {
      Captures& c = kCapturesOf(self);
      if (c.is_capturing(stream)) {
        return guarded(*c.backend().host, [&] { return c.fill(stream, dst, pattern, size_bytes); });
      }
      return c.backend().memory.fill(self, stream, dst, pattern, size_bytes);
    };
    memory.deallocate = [](void* self, bp_buffer* buffer, bp_stream* stream) -> bp_status {
      Captures& c = kCapturesOf(self);
      if (stream != nullptr && c.is_capturing(stream)) return c.refuse("deallocate");
      return c.backend().memory.deallocate(self, buffer, stream);
    };
    memory.allocate = [](void* self, bp_device* device, const bp_allocate_desc* desc,
                         bp_buffer** out_buffer) -> bp_status {
      Captures& c = kCapturesOf(self);
      constexpr uint32_t kHasStream = offsetof(bp_allocate_desc, stream) + sizeof(bp_stream*);
      const bool has_stream =
          desc != nullptr && desc->struct_size >= kHasStream && desc->stream != nullptr;
      if (has_stream && c.is_capturing(desc->stream)) return c.refuse("allocate");
      return c.backend().memory.allocate(self, device, desc, out_buffer);
    };
  }

  template <EntryName kName, Work::Kind kKind, auto kEntry>
  static bp_status copy(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                        const bp_buffer_ref* src) {
    Captures& c = kCapturesOf(self);
    if (c.is_capturing(stream)) {
      return guarded(*c.backend().host,
                     [&] { return c.copy(kName.value, kKind, stream, dst, src); });
    }
    return (c.backend().memory.*kEntry)(self, stream, dst, src);
  }
};

// A base for the traits of a backend whose streams have a `queue` of queue.hpp and a `device`.
// lookup.hpp finds the objects behind handles, and `Memory`, the traits of memory_ops.hpp, knows
// the buffers.
template <typename Stream, typename Event, typename Memory>
struct QueueHandles {
  using Buffer = typename Memory::Buffer;

  static Stream* stream_of(bp_stream* handle) { return object_of<Stream>(handle); }
  static Event* event_of(bp_event* handle) { return object_of<Event>(handle); }
  static Buffer* buffer_of(bp_buffer* handle) { return object_of<Buffer>(handle); }
  static uint64_t address_of(const Buffer& buffer) { return Memory::address_of(buffer); }
  static const void* queue_of(bp_stream* handle) {
    const Stream* const s = stream_of(handle);
    return s == nullptr ? nullptr : s->queue.get();
  }
  static bp_device* device_of_stream(void*, bp_stream* handle) {
    return reinterpret_cast<bp_device*>(stream_of(handle)->device);
  }
  static void fail(bp_stream* handle, bp_status status, const std::string& text) {
    const auto end = [=] { throw StatusError(status, text); };
    static_cast<void>(stream_of(handle)->queue->submit(end));
  }
};

template <typename Instance>
Captures& captures_of(void* self) {
  return *static_cast<Instance*>(self)->captures;
}

// Makes the captures of an instance whose tables are complete, replaces entries of these tables,
// and fills the table of graphs. `Traits` looks up handles, which may be NULL or foreign. It has
// these types and static members:
//   Instance                         has host, hooks, devices, allocator, streams, events, graphs,
//                                    captures
//   queue_of(stream)                 an address that all handles of one queue share; NULL for a
//                                    handle that is none of this backend
//   device_of_stream(self, stream)   the handle of its device
//   event_of(event)                  a pointer to what has `flags` and latest(); NULL if foreign
//   buffer_of(buffer)                a pointer to what has `size_bytes`; NULL if foreign
//   address_of(buffer)               the address of the first byte of what buffer_of() finds
//   fail(stream, status, text)       lets what was submitted end in a failure
//   replay(self, instance, stream)   optional: submits all work of a graph at once
template <typename Traits>
void offer_captures(typename Traits::Instance& i) {
  CaptureBackend backend{
      .host = i.host,
      .hooks = &i.hooks,
      .memory = i.allocator,
      .streams = i.streams,
      .events = i.events,
      .devices = i.devices,
      .queue_of = Traits::queue_of,
      .device_of = Traits::device_of_stream,
      .state_of = [](bp_event* handle) -> EventState {
        auto* const e = Traits::event_of(handle);
        if (e == nullptr) return {};
        return {true, (e->flags & BP_EVENT_HOST_SIGNAL) != 0, e->latest() != nullptr};
      },
      .size_of =
          [](bp_buffer* handle, uint64_t& out_size_bytes) {
            const auto* const b = Traits::buffer_of(handle);
            if (b != nullptr) out_size_bytes = b->size_bytes;
            return b != nullptr;
          },
      .address_of = [](bp_buffer* handle) -> uint64_t {
        const auto* const b = Traits::buffer_of(handle);
        return b == nullptr ? 0 : Traits::address_of(*b);
      },
      .fail = Traits::fail};
  if constexpr (requires { Traits::replay; }) backend.replay = Traits::replay;
  i.captures = std::make_unique<Captures>(backend);
  CaptureFront<captures_of<typename Traits::Instance>>::put(i.streams, i.events, i.allocator);
  i.graphs = i.captures->graphs();
}

}  // namespace bp
