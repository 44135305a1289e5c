#include "backplane/shell/shared_events.hpp"

#include <cstddef>
#include <system_error>
#include <utility>

#include "backplane/shell/memory_file.hpp"

namespace bp {
namespace {

// The record that a callback completes.
struct Completion {
  std::shared_ptr<SharedEvent> shared;
  SharedRecord record;
};

void complete(void* data, bp_status status) {
  const std::unique_ptr<Completion> completion(static_cast<Completion*>(data));
  completion->shared->complete(completion->record, status);
}

constexpr const char* kLost =
    "the process that recorded the event ended before the recorded work did";

std::string failure_text(bp_status status) {
  return std::string("the work that another process recorded ") +
         (status == BP_ABORTED ? "was aborted" : "has failed");
}

// Whether the latest record is this process's own, which the event of the backend has captured.
bool is_own(const std::atomic<SharedRecord>& recorded, SharedRecord latest) {
  return recorded.load() == latest;
}

// Holds a record, and releases it in its destructor unless another owner takes the hold over.
class Hold {
 public:
  explicit Hold(SharedEvent& shared) : shared_(shared), holds_(shared.hold_latest(record_)) {}
  ~Hold() {
    if (holds_) shared_.release(record_);
  }
  Hold(const Hold&) = delete;

  bool has_record() const { return holds_; }
  SharedRecord record() const { return record_; }
  void give_up() { holds_ = false; }

 private:
  SharedEvent& shared_;
  SharedRecord record_;
  bool holds_;
};

}  // namespace

SharedEvents::~SharedEvents() {
  is_stopped_ = true;
  {
    const std::lock_guard lock(mutex_);
    for (const Watch& watch : watches_) {
      if (watch.shared != nullptr) watch.shared->wake();
    }
  }
  for (Watch& watch : watches_) watch.thread.join();
}

std::shared_ptr<SharedEvents::Entry> SharedEvents::find(bp_event* event) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(event);
  return found == entries_.end() ? nullptr : found->second;
}

// Lets go who waits for `proxy`.
void SharedEvents::end(bp_event* proxy, bp_status status, const std::string& text) const {
  static_cast<void>(guarded(*backend_.host, [&] {
    backend_.end_event(backend_.events.self, proxy, status, text);
    return bp_status{BP_OK};
  }));
}

bp_status SharedEvents::add(bp_device* device, const bp_event_desc& desc, bool is_exportable,
                            std::shared_ptr<SharedEvent> shared, bp_event** out_event) {
  auto entry = std::make_shared<Entry>();
  entry->device = device;
  entry->is_exportable = is_exportable;
  entry->shared = std::move(shared);
  bp_event* event = nullptr;
  const bp_status status = backend_.events.create(backend_.events.self, device, &desc, &event);
  if (status != BP_OK) return status;
  try {
    const std::lock_guard lock(mutex_);
    entries_.emplace(event, std::move(entry));
  } catch (...) {
    static_cast<void>(backend_.events.destroy(backend_.events.self, event));
    throw;
  }
  ++count_;
  *out_event = event;
  return BP_OK;
}

bp_status SharedEvents::create(bp_device* device, const bp_event_desc& desc, bp_event** out_event) {
  if ((desc.flags & BP_EVENT_HOST_SIGNAL) != 0) {
    throw StatusError(BP_UNSUPPORTED,
                      "event.create: flags has BP_EVENT_HOST_SIGNAL and BP_EVENT_EXPORTABLE; what "
                      "processes share is recorded, not signalled");
  }
  backend_.check_device(backend_.events.self, device, "event.create");
  bp_event_desc plain = desc;
  plain.flags &= ~bp_event_flags{BP_EVENT_EXPORTABLE};
  return add(device, plain, true, std::make_shared<SharedEvent>("event.create", backend_.kind),
             out_event);
}

bp_status SharedEvents::destroy(bp_event* event) {
  {
    const std::lock_guard lock(mutex_);
    if (entries_.erase(event) != 0) --count_;
  }
  return backend_.events.destroy(backend_.events.self, event);
}

bp_status SharedEvents::record(bp_event* event, bp_stream* stream) {
  const std::shared_ptr<Entry> entry = find(event);
  const bp_stream_ops& streams = backend_.streams;
  uint32_t is_capturing = 0;
  // If is_capturing() refuses the stream, the call below refuses it too, and its error text counts.
  bp_status status = streams.is_capturing(streams.self, stream, &is_capturing);
  if (status == BP_OK && is_capturing != 0) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      "event.record: the stream captures, and a replay is not seen by the other "
                      "processes that the event may be exported to");
  }
  // The record is submitted under the lock. If two records race, the later submission is then the
  // latest one.
  const std::lock_guard lock(entry->recording);
  auto completion = std::make_unique<Completion>();
  completion->shared = entry->shared;
  const SharedRecord record = completion->record = entry->shared->claim("event.record");
  status = backend_.events.record(backend_.events.self, event, stream);
  if (status == BP_OK) {
    status = streams.add_callback(streams.self, stream, complete, completion.get());
  }
  if (status != BP_OK) {
    entry->shared->abandon(record);
    return status;
  }
  static_cast<void>(completion.release());
  entry->recorded = record;
  entry->shared->publish(record);
  return BP_OK;
}

bp_status SharedEvents::query(bp_event* event, uint32_t* out_done) {
  const std::shared_ptr<Entry> entry = find(event);
  const Hold hold(*entry->shared);
  if (!hold.has_record() || is_own(entry->recorded, hold.record()) || out_done == nullptr) {
    return backend_.events.query(backend_.events.self, event, out_done);
  }
  backend_.check_event(backend_.events.self, event, "event.query");
  *out_done = entry->shared->is_done(hold.record()) ? 1 : 0;
  return BP_OK;
}

bp_status SharedEvents::synchronize(bp_event* event, uint64_t timeout_ns) {
  const std::shared_ptr<Entry> entry = find(event);
  const Hold hold(*entry->shared);
  if (!hold.has_record() || is_own(entry->recorded, hold.record())) {
    return backend_.events.synchronize(backend_.events.self, event, timeout_ns);
  }
  backend_.check_event(backend_.events.self, event, "event.synchronize");
  bp_status outcome = BP_OK;
  switch (entry->shared->wait(hold.record(), timeout_ns, is_stopped_, outcome)) {
    case SharedWait::kDone:
      if (outcome == BP_OK) return BP_OK;
      throw StatusError(outcome, "event.synchronize: " + failure_text(outcome));
    case SharedWait::kLost:
      throw StatusError(BP_ABORTED, std::string("event.synchronize: ") + kLost);
    case SharedWait::kTimeout:
      return backend_.host->set_error(
          backend_.host->self, BP_TIMEOUT,
          ("event.synchronize: what another process recorded did not end within " +
           std::to_string(timeout_ns) + " ns")
              .c_str());
    case SharedWait::kStopped:
      break;
  }
  throw StatusError(BP_ABORTED, "event.synchronize: the backend is shut down");
}

bp_status SharedEvents::elapsed_ns(bp_event* start, bp_event* end, int64_t* out_elapsed_ns) {
  for (bp_event* const event : {start, end}) {
    const std::shared_ptr<Entry> entry = find(event);
    SharedRecord latest;
    if (entry == nullptr || !entry->shared->latest(latest) || is_own(entry->recorded, latest))
      continue;
    throw StatusError(BP_INVALID_ARGUMENT,
                      std::string("event.elapsed_ns: ") + (event == start ? "start" : "end") +
                          " was recorded last by another process, whose times are not known");
  }
  return backend_.events.elapsed_ns(backend_.events.self, start, end, out_elapsed_ns);
}

bp_status SharedEvents::wait_event(bp_stream* stream, bp_event* event) {
  const std::shared_ptr<Entry> entry = find(event);
  Hold hold(*entry->shared);
  if (!hold.has_record() || is_own(entry->recorded, hold.record())) {
    return backend_.streams.wait_event(backend_.streams.self, stream, event);
  }
  backend_.check_event(backend_.events.self, event, "stream.wait_event");
  const SharedRecord record = hold.record();
  hold.give_up();
  return wait_for_other(stream, *entry, record);
}

// Lets `stream` wait for an event that the host signals. It is signalled at once, or when the
// record completes.
bp_status SharedEvents::wait_for_other(bp_stream* stream, const Entry& entry, SharedRecord held) {
  const bp_event_ops& events = backend_.events;
  const bp_event_desc desc{.struct_size = sizeof(bp_event_desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_HOST_SIGNAL};
  bp_event* proxy = nullptr;
  bp_status status = events.create(events.self, entry.device, &desc, &proxy);
  if (status == BP_OK) {
    status = backend_.streams.wait_event(backend_.streams.self, stream, proxy);
    if (status == BP_OK) {
      start_watch(entry, held, proxy);
      return BP_OK;
    }
    static_cast<void>(events.destroy(events.self, proxy));
  }
  entry.shared->release(held);
  return status;
}

// Returns false if the system has no more threads.
bool SharedEvents::try_watch(const Entry& entry, SharedRecord held, bp_event* proxy) {
  const std::lock_guard lock(mutex_);
  for (auto watch = watches_.begin(); watch != watches_.end();) {
    if (!watch->is_over) {
      ++watch;
      continue;
    }
    watch->thread.join();
    watch = watches_.erase(watch);
  }
  Watch& added = watches_.emplace_back();
  added.shared = entry.shared;
  try {
    added.thread = std::thread([this, &added, held, proxy] { watch(added, held, proxy); });
  } catch (const std::system_error&) {
    watches_.pop_back();
    return false;
  }
  return true;
}

// Starts a thread that waits for the record. The thread takes over the hold on the record, and the
// proxy.
void SharedEvents::start_watch(const Entry& entry, SharedRecord held, bp_event* proxy) {
  if (try_watch(entry, held, proxy)) return;
  entry.shared->release(held);
  // The wait is submitted already: it ends in a failure, not never.
  end(proxy, BP_OUT_OF_MEMORY, "no thread was left to wait for another process");
  static_cast<void>(backend_.events.destroy(backend_.events.self, proxy));
  throw StatusError(BP_OUT_OF_MEMORY,
                    "stream.wait_event: no thread is left to wait for another process");
}

void SharedEvents::watch(Watch& watch, SharedRecord record, bp_event* proxy) {
  const bp_event_ops& events = backend_.events;
  bp_status outcome = BP_OK;
  const SharedWait how = watch.shared->wait(record, UINT64_MAX, is_stopped_, outcome);
  watch.shared->release(record);
  {
    // The event is closed before any waiter goes on, because a waiter may count the descriptors of
    // the process.
    const std::lock_guard lock(mutex_);
    watch.shared.reset();
  }
  if (how == SharedWait::kLost) end(proxy, BP_ABORTED, kLost);
  if (how == SharedWait::kDone) end(proxy, outcome, outcome == BP_OK ? "" : failure_text(outcome));
  static_cast<void>(events.destroy(events.self, proxy));
  watch.is_over = true;
}

// A stream of its own waits for the event, so that the callback holds nobody else's work.
bp_status SharedEvents::on_complete(bp_event* event, bp_stream_callback_fn* callback,
                                    void* user_data) {
  backend_.check_event(backend_.events.self, event, "event.on_complete");
  const std::shared_ptr<Entry> entry = find(event);
  const bp_stream_ops& streams = backend_.streams;
  if (callback == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT, "event.on_complete: callback is NULL");
  }
  bp_stream* own = nullptr;
  bp_status status = streams.create(streams.self, entry->device, nullptr, &own);
  if (status != BP_OK) return status;
  status = guarded(*backend_.host, [&] { return wait_event(own, event); });
  if (status == BP_OK || status == BP_STREAM_FAILED) {
    status = streams.add_callback(streams.self, own, callback, user_data);
  }
  static_cast<void>(streams.destroy(streams.self, own));
  return status;
}

bp_status SharedEvents::export_event(bp_event* event, bp_external_type type,
                                     bp_external_handle* out_handle) {
  backend_.check_event(backend_.events.self, event, "export_event");
  const std::shared_ptr<Entry> entry = find(event);
  if (entry == nullptr || !entry->is_exportable) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      "export_event: event is not one made with BP_EVENT_EXPORTABLE");
  }
  check_export(type, out_handle, "export_event");
  give_descriptor(entry->shared->duplicate("export_event"), 0, out_handle);
  return BP_OK;
}

bp_status SharedEvents::import_event(bp_device* device, const bp_external_handle* handle,
                                     bp_event** out_event) {
  backend_.check_device(backend_.events.self, device, "import_event");
  if (out_event == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT, "import_event: out_event is NULL");
  }
  const bp_external_handle given = read_external_object(handle, "import_event", "an event");
  const bp_event_desc desc{.struct_size = sizeof(bp_event_desc),
                           .struct_type = BP_STRUCT_EVENT_DESC};
  return add(device, desc, false,
             std::make_shared<SharedEvent>("import_event", backend_.kind, given.fd), out_event);
}

}  // namespace bp
