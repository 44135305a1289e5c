// The rules of the slots of streams and events, and what orders work.
#include "registry/layers/validate.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {

// ---- Streams ------------------------------------------------------------------------------------

bp_status ValidateLayer::made_stream(bp_status status, bp_device* device, bp_stream** out_stream,
                                     bool is_lent) {
  if (status != BP_OK || out_stream == nullptr) return status;
  const std::lock_guard lock(mutex_);
  // A default stream that several devices share belongs to none of them.
  const Handle* known = handles_.find(HandleKind::stream, *out_stream);
  const bool is_shared = is_lent && known != nullptr && known->device != device;
  handles_.add(HandleKind::stream, *out_stream,
               {.device = is_shared ? nullptr : device, .is_lent = is_lent});
  hazards_.add_stream(*out_stream, device);
  return status;
}

bp_status ValidateLayer::call(At<Slot::stream_create>, Continue next, bp_device* device,
                              const bp_stream_desc* /*desc*/, bp_stream** out_stream) {
  return made_stream(next(), device, out_stream, false);
}

bp_status ValidateLayer::call(At<Slot::stream_default_stream>, Continue next, bp_device* device,
                              bp_stream** out_stream) {
  return made_stream(next(), device, out_stream, true);
}

bp_status ValidateLayer::call(At<Slot::stream_wrap_native>, Continue next, bp_device* device,
                              void* /*native*/, bp_stream** out_stream) {
  const bp_status status = made_stream(next(), device, out_stream, false);
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  hazards_.begin_unseen(*out_stream);
  return status;
}

bp_status ValidateLayer::call(At<Slot::stream_destroy>, Continue next, bp_stream* stream) {
  {
    std::unique_lock lock(mutex_);
    const Handle* known = handles_.find(HandleKind::stream, stream);
    if (known != nullptr && known->is_lent) {
      return illegal(lock, Slot::stream_destroy, "[STREAM-6] it is the default stream");
    }
    for (bp_stream* each : captures_.end(stream)) hazards_.end_unseen(each);
    replays_.end(stream, nullptr);
    if (Hazards* within = replays_.hazards(captures_.origin(stream))) {
      within->remove_stream(stream);
    }
    captures_.forget_stream(stream);
    for (auto& [event, waiters] : signal_waiters_) std::erase(waiters, stream);
    hazards_.remove_stream(stream);
  }
  return end_through(HandleKind::stream, stream, Slot::stream_destroy, next);
}

bp_status ValidateLayer::call(At<Slot::stream_query>, Continue next, bp_stream* stream,
                              uint32_t* out_done) {
  const bp_status status = next();
  if (status != BP_OK || *out_done == 0) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_stream(stream);
  return status;
}

bp_status ValidateLayer::ended(bp_stream* stream, bp_status status) {
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_stream(stream);
  return status;
}

bp_status ValidateLayer::call(At<Slot::stream_wait_event>, Continue next, bp_stream* stream,
                              bp_event* event) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  const Handle* known = handles_.find(HandleKind::event, event);
  if (known == nullptr) return status;
  if ((known->flags & BP_EVENT_HOST_SIGNAL) != 0 && !known->has_happened) {
    hazards_.begin_unseen(stream);
    signal_waiters_[event].push_back(stream);
  } else if (bp_stream* const origin = captures_.origin(event); origin != nullptr) {
    if (captures_.join(stream, origin)) hazards_.begin_unseen(stream);
    Hazards& within = *replays_.hazards(origin);
    within.add_stream(stream, nullptr);
    within.wait_event(stream, event);
  } else {
    hazards_.wait_event(stream, event);
  }
  return status;
}

// ---- Events -------------------------------------------------------------------------------------

bp_status ValidateLayer::call(At<Slot::event_create>, Continue next, bp_device* device,
                              const bp_event_desc* desc, bp_event** out_event) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  const uint32_t flags = desc == nullptr ? 0 : desc->flags;
  handles_.add(HandleKind::event, *out_event, {.device = device, .flags = flags});
  hazards_.remove_event(*out_event);
  return status;
}

bp_status ValidateLayer::call(At<Slot::event_import_event>, Continue next, bp_device* device,
                              const bp_external_handle* /*handle*/, bp_event** out_event) {
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  handles_.add(HandleKind::event, *out_event, {.device = device});
  return status;
}

bp_status ValidateLayer::call(At<Slot::event_destroy>, Continue next, bp_event* event) {
  {
    const std::lock_guard lock(mutex_);
    hazards_.remove_event(event);
    captures_.forget_event(event);
    signal_waiters_.erase(event);  // Those streams wait for ever, and stay unseen.
  }
  return end_through(HandleKind::event, event, Slot::event_destroy, next);
}

bp_status ValidateLayer::call(At<Slot::event_record>, Continue next, bp_event* event,
                              bp_stream* stream) {
  {
    std::unique_lock lock(mutex_);
    const Handle* known = handles_.find(HandleKind::event, event);
    if (known != nullptr && (known->flags & BP_EVENT_HOST_SIGNAL) != 0) {
      return illegal(lock, Slot::event_record,
                     "[EVENT-9] event " + words(event) + " is host-signalled");
    }
  }
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (Handle* known = handles_.find(HandleKind::event, event)) known->has_happened = true;
  captures_.record(event, stream);
  hazards_.record_event(event, stream);
  if (Hazards* within = replays_.hazards(captures_.origin(stream))) {
    within->record_event(event, stream);
  }
  return status;
}

bp_status ValidateLayer::call(At<Slot::event_query>, Continue next, bp_event* event,
                              uint32_t* out_done) {
  const bp_status status = next();
  if (status != BP_OK || *out_done == 0) return status;
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_event(event);
  return status;
}

bp_status ValidateLayer::ended(bp_event* event, bp_status status) {
  const std::lock_guard lock(mutex_);
  hazards_.host_waits_for_event(event);
  return status;
}

bp_status ValidateLayer::call(At<Slot::event_elapsed_ns>, Continue next, bp_event* start,
                              bp_event* end, int64_t* /*out_elapsed_ns*/) {
  {
    std::unique_lock lock(mutex_);
    for (bp_event* event : {start, end}) {
      const Handle* known = handles_.find(HandleKind::event, event);
      if (known == nullptr) continue;
      if ((known->flags & BP_EVENT_TIMING) == 0) {
        return illegal(lock, Slot::event_elapsed_ns,
                       "[EVENT-11] event " + words(event) + " was made without BP_EVENT_TIMING");
      }
      if (!known->has_happened) {
        return illegal(lock, Slot::event_elapsed_ns,
                       "[EVENT-11] event " + words(event) + " was never recorded");
      }
    }
  }
  return next();
}

bp_status ValidateLayer::call(At<Slot::event_signal>, Continue next, bp_event* event,
                              bp_status /*status*/) {
  {
    std::unique_lock lock(mutex_);
    const Handle* known = handles_.find(HandleKind::event, event);
    if (known != nullptr && (known->flags & BP_EVENT_HOST_SIGNAL) == 0) {
      return illegal(lock, Slot::event_signal,
                     "[EVENT-12] event " + words(event) + " is not host-signalled");
    }
    if (known != nullptr && known->has_happened) {
      return illegal(lock, Slot::event_signal,
                     "[EVENT-12] event " + words(event) + " was signalled");
    }
  }
  const bp_status status = next();
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (Handle* known = handles_.find(HandleKind::event, event)) known->has_happened = true;
  hazards_.signal_event(event);
  for (bp_stream* stream : signal_waiters_[event]) {
    hazards_.end_unseen(stream);
    hazards_.wait_event(stream, event);
  }
  signal_waiters_.erase(event);
  return status;
}

}  // namespace bp::layers
