// Events that processes share, for backends whose own events work in one process only.
//
// The backend's events do not change. An event that can be exported is an event of the backend,
// with a SharedEvent beside it in a table of this class. A record goes to both. If this process
// made the latest record, a wait is for the event of the backend. If another process made it, a
// wait is for a host-signalled event of the backend, and a thread signals this event when the
// record completes. While no event is shared, a call costs one relaxed load.
//
// A backend puts SharedEventFront (shared_event_front.hpp) in front of its tables, outside
// CaptureFront.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/shared_event.hpp"
#include "backplane/stream.h"

namespace bp {

// What shared events need of a backend.
struct SharedEventBackend {
  const bp_host* host;
  bp_stream_ops streams;  // With its self, and without SharedEventFront.
  bp_event_ops events;
  std::string kind;  // The name of the files behind descriptors.

  // Throws StatusError, whose text begins with `call`, unless the device can be used.
  void (*check_device)(void* self, bp_device* device, const char* call);
  void (*check_event)(void* self, bp_event* event, const char* call);

  // Signals an event that the host signals, as events.signal() does, but with `text` for whoever
  // waits: the host has signalled nothing. May throw StatusError.
  void (*end_event)(void* self, bp_event* event, bp_status status, const std::string& text);
};

class SharedEvents {
 public:
  explicit SharedEvents(SharedEventBackend backend) : backend_(std::move(backend)) {}
  SharedEvents(const SharedEvents&) = delete;

  // Ends all waits for other processes. Work of the backend that waits for them goes on waiting.
  ~SharedEvents();

  const SharedEventBackend& backend() const { return backend_; }

  bool is_shared(bp_event* event) const {
    return count_.load(std::memory_order_relaxed) != 0 && find(event) != nullptr;
  }

  // These functions replace the entries of the tables for a shared event. They may throw
  // StatusError.
  bp_status create(bp_device* device, const bp_event_desc& desc, bp_event** out_event);
  bp_status destroy(bp_event* event);
  bp_status record(bp_event* event, bp_stream* stream);
  bp_status query(bp_event* event, uint32_t* out_done);
  bp_status synchronize(bp_event* event, uint64_t timeout_ns);
  bp_status elapsed_ns(bp_event* start, bp_event* end, int64_t* out_elapsed_ns);
  bp_status wait_event(bp_stream* stream, bp_event* event);
  bp_status on_complete(bp_event* event, bp_stream_callback_fn* callback, void* user_data);
  bp_status export_event(bp_event* event, bp_external_type type, bp_external_handle* out_handle);
  bp_status import_event(bp_device* device, const bp_external_handle* handle, bp_event** out_event);

 private:
  struct Entry {
    bp_device* device;
    bool is_exportable;
    std::shared_ptr<SharedEvent> shared;
    std::mutex recording;  // record() holds it while it calls the backend.
    // The latest record that this process made; its generation is 0 if there is none.
    std::atomic<SharedRecord> recorded = SharedRecord();
  };

  // A thread that waits for another process.
  struct Watch {
    std::shared_ptr<SharedEvent> shared;  // NULL when the wait is over; `mutex_` guards it.
    std::atomic<bool> is_over = false;
    std::thread thread;
  };

  std::shared_ptr<Entry> find(bp_event* event) const;
  bp_status add(bp_device* device, const bp_event_desc& desc, bool is_exportable,
                std::shared_ptr<SharedEvent> shared, bp_event** out_event);
  void end(bp_event* proxy, bp_status status, const std::string& text) const;
  void watch(Watch& watch, SharedRecord record, bp_event* proxy);
  bp_status wait_for_other(bp_stream* stream, const Entry& entry, SharedRecord held);
  bool try_watch(const Entry& entry, SharedRecord held, bp_event* proxy);
  void start_watch(const Entry& entry, SharedRecord held, bp_event* proxy);

  const SharedEventBackend backend_;
  std::atomic<uint32_t> count_ = 0;
  std::atomic<bool> is_stopped_ = false;
  mutable std::mutex mutex_;  // It guards the members below.
  std::unordered_map<bp_event*, std::shared_ptr<Entry>> entries_;
  std::list<Watch> watches_;
};

}  // namespace bp
