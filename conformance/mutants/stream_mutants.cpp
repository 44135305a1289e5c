// Mutants of streams, events, copies and failures. The numbers are those of the kill table.
#include <algorithm>
#include <array>
#include <unordered_set>
#include <vector>

#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// The state of these mutants.
struct Memory {
  uint64_t calls = 0;
  std::unordered_set<const void*> events;   // Host-signalled events, or recorded events.
  std::unordered_set<const void*> streams;  // Streams whose failure was reported.
  bp_status failure = BP_OK;                // The latest failure that any stream has reported.
  std::array<std::vector<std::byte>, 2> staging;
};

Memory& memory_of(Runtime& runtime) { return runtime.state_as<Memory>(); }

void start(Runtime& runtime) { static_cast<void>(memory_of(runtime)); }

// ---- 24: work on the default stream instead of the given one -----------------------------------

bp_stream* default_stream(Runtime& r, bp_device* device, bp_stream* otherwise) {
  bp_stream* stream = nullptr;
  const bp_stream_ops& good = r.good.streams;
  return good.default_stream(good.self, device, &stream) == BP_OK ? stream : otherwise;
}

// Gross: moves every kernel. Subtle: one kernel in three.
bp_stream* launch_elsewhere(Runtime& r, const bp_launch& launch) {
  const std::lock_guard lock(r.mutex);
  const bool is_hit = r.strength != "subtle" || memory_of(r).calls++ % 3 == 0;
  return is_hit ? default_stream(r, launch.device, launch.stream) : launch.stream;
}

// ---- 25: host memory is read or written later than promised -------------------------------------

constexpr size_t kStagingBytes = 1 << 20;

// The copy reads its source when it runs.
bp_status copy_without_staging(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                               const void* src, bp_borrow borrow) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  if (borrow == BP_BORROW_DURING_CALL) borrow = BP_BORROW_UNTIL_COMPLETE;
  return good.copy_from_host(good.self, stream, dst, src, borrow);
}

// The copy is staged in one of two places. The copy after the next one uses the same place.
bp_status copy_through_two_places(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                                  const void* src, bp_borrow borrow) {
  Runtime& r = runtime_of(self);
  const bp_allocator_ops& good = r.good.allocator;
  const bool fits = dst != nullptr && src != nullptr && dst->size_bytes <= kStagingBytes;
  if (borrow != BP_BORROW_DURING_CALL || !fits) {
    return good.copy_from_host(good.self, stream, dst, src, borrow);
  }
  const std::lock_guard lock(r.mutex);
  std::vector<std::byte>& place = memory_of(r).staging[memory_of(r).calls++ % 2];
  place.resize(kStagingBytes);
  const auto* from = static_cast<const std::byte*>(src);
  std::copy(from, from + dst->size_bytes, place.begin());
  return good.copy_from_host(good.self, stream, dst, place.data(), BP_BORROW_UNTIL_COMPLETE);
}

// The copy returns before the bytes have arrived.
bp_status copy_to_host_later(void* self, bp_stream* stream, void* dst, const bp_buffer_ref* src,
                             bp_borrow borrow, uint64_t timeout_ns) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  if (borrow == BP_BORROW_DURING_CALL) borrow = BP_BORROW_UNTIL_COMPLETE;
  return good.copy_to_host(good.self, stream, dst, src, borrow, timeout_ns);
}

// The copy goes on to the host's memory after a timeout.
bp_status copy_to_host_after_timeout(void* self, bp_stream* stream, void* dst,
                                     const bp_buffer_ref* src, bp_borrow borrow,
                                     uint64_t timeout_ns) {
  const Tables& good = runtime_of(self).good;
  const bp_allocator_ops& memory = good.allocator;
  if (borrow != BP_BORROW_DURING_CALL || timeout_ns == UINT64_MAX) {
    return memory.copy_to_host(memory.self, stream, dst, src, borrow, timeout_ns);
  }
  const bp_status status =
      memory.copy_to_host(memory.self, stream, dst, src, BP_BORROW_UNTIL_COMPLETE, UINT64_MAX);
  if (status != BP_OK) return status;
  return good.streams.synchronize(good.streams.self, stream, timeout_ns);
}

void bend_copies(Runtime& r) {
  start(r);
  if (r.strength == "staging") {
    r.bent.allocator.copy_from_host = copy_through_two_places;
  } else if (r.strength == "read") {
    r.bent.allocator.copy_to_host = copy_to_host_later;
  } else if (r.strength == "timeout") {
    r.bent.allocator.copy_to_host = copy_to_host_after_timeout;
  } else {
    r.bent.allocator.copy_from_host = copy_without_staging;
  }
}

// ---- 26: events that do not order, or tell too early --------------------------------------------

bp_status remember_host_signalled(void* self, bp_device* device, const bp_event_desc* desc,
                                  bp_event** out_event) {
  Runtime& r = runtime_of(self);
  const bp_event_ops& good = r.good.events;
  const bp_status status = good.create(good.self, device, desc, out_event);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  memory_of(r).events.erase(*out_event);
  if (desc != nullptr && (desc->flags & BP_EVENT_HOST_SIGNAL) != 0) {
    memory_of(r).events.insert(*out_event);
  }
  return BP_OK;
}

// Gross: ignores every wait for a recorded event. Subtle: one in four.
bp_status ignore_wait(void* self, bp_stream* stream, bp_event* event) {
  Runtime& r = runtime_of(self);
  const bp_stream_ops& good = r.good.streams;
  if (stream != nullptr && event != nullptr) {
    const std::lock_guard lock(r.mutex);
    const bool is_hit = r.strength != "subtle" || memory_of(r).calls++ % 4 == 0;
    if (is_hit && !memory_of(r).events.contains(event)) return BP_OK;
  }
  return good.wait_event(good.self, stream, event);
}

bp_status event_query_early(void* self, bp_event* event, uint32_t* out_done) {
  const bp_event_ops& good = runtime_of(self).good.events;
  const bp_status status = good.query(good.self, event, out_done);
  if (status == BP_OK) *out_done = 1;
  return status;
}

bp_status stream_query_early(void* self, bp_stream* stream, uint32_t* out_done) {
  const bp_stream_ops& good = runtime_of(self).good.streams;
  const bp_status status = good.query(good.self, stream, out_done);
  if (status == BP_OK) *out_done = 1;
  return status;
}

// A second record leaves the work that the first one captured.
bp_status record_once(void* self, bp_event* event, bp_stream* stream) {
  Runtime& r = runtime_of(self);
  const bp_event_ops& good = r.good.events;
  if (event != nullptr && stream != nullptr) {
    const std::lock_guard lock(r.mutex);
    if (memory_of(r).events.contains(event)) return BP_OK;
  }
  const bp_status status = good.record(good.self, event, stream);
  if (status != BP_OK) return status;
  const std::lock_guard lock(r.mutex);
  memory_of(r).events.insert(event);
  return status;
}

// Calls back at once, whatever the event waits for.
bp_status call_back_early(void* self, bp_event* event, bp_stream_callback_fn* callback,
                          void* user_data) {
  const bp_event_ops& good = runtime_of(self).good.events;
  if (event == nullptr || callback == nullptr) {
    return good.on_complete(good.self, event, callback, user_data);
  }
  return callback(user_data, BP_OK), BP_OK;
}

// Accepts the handle, and gives an event that is not related to it.
bp_status import_another(void* self, bp_device* device, const bp_external_handle* handle,
                         bp_event** out_event) {
  const bp_event_ops& good = runtime_of(self).good.events;
  bp_event* imported = nullptr;
  const bp_status status = good.import_event(good.self, device, handle, &imported);
  if (status != BP_OK) return status;
  static_cast<void>(good.destroy(good.self, imported));
  return good.create(good.self, device, nullptr, out_event);
}

// Accepts the native stream, and gives a stream with its own queue.
bp_status wrap_another(void* self, bp_device* device, void* native, bp_stream** out_stream) {
  const bp_stream_ops& good = runtime_of(self).good.streams;
  bp_stream* wrapped = nullptr;
  const bp_status status = good.wrap_native(good.self, device, native, &wrapped);
  if (status != BP_OK) return status;
  static_cast<void>(good.destroy(good.self, wrapped));
  return good.create(good.self, device, nullptr, out_stream);
}

bp_status forget_event(void* self, bp_event* event) {
  Runtime& r = runtime_of(self);
  {
    const std::lock_guard lock(r.mutex);
    memory_of(r).events.erase(event);
  }
  return r.good.events.destroy(r.good.events.self, event);
}

void bend_events(Runtime& r) {
  start(r);
  r.bent.events.destroy = forget_event;
  if (r.strength == "query") {
    r.bent.events.query = event_query_early;
  } else if (r.strength == "stream_query") {
    r.bent.streams.query = stream_query_early;
  } else if (r.strength == "record") {
    r.bent.events.record = record_once;
  } else if (r.strength == "callback") {
    if (r.good.events.on_complete != nullptr) r.bent.events.on_complete = call_back_early;
  } else if (r.strength == "import") {
    if (r.good.events.import_event != nullptr) r.bent.events.import_event = import_another;
  } else if (r.strength == "native") {
    if (r.good.streams.wrap_native != nullptr) r.bent.streams.wrap_native = wrap_another;
  } else {
    r.bent.events.create = remember_host_signalled;
    r.bent.streams.wait_event = ignore_wait;
  }
}

// ---- 28: failures that are not told where and as often as they must -----------------------------

bp_status accept_any_fill(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                          const void* pattern, uint64_t pattern_size_bytes) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  const bp_status status = good.fill(good.self, stream, dst, pattern, pattern_size_bytes);
  return status == BP_INVALID_ARGUMENT ? bp_status{BP_OK} : status;
}

// A submission to a failed stream returns the failure of the stream, as a refusal of its own.
bp_status fill_with_failure(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                            const void* pattern, uint64_t pattern_size_bytes) {
  const Runtime& r = runtime_of(self);
  const bp_allocator_ops& good = r.good.allocator;
  const bp_status status = good.fill(good.self, stream, dst, pattern, pattern_size_bytes);
  if (status != BP_STREAM_FAILED) return status;
  return r.good.streams.status(r.good.streams.self, stream);
}

// Work of 0 bytes is never refused.
bp_status accept_empty_fill(void* self, bp_stream* stream, const bp_buffer_ref* dst,
                            const void* pattern, uint64_t pattern_size_bytes) {
  const bp_allocator_ops& good = runtime_of(self).good.allocator;
  const bp_status status = good.fill(good.self, stream, dst, pattern, pattern_size_bytes);
  return status == BP_STREAM_FAILED && dst->size_bytes == 0 ? bp_status{BP_OK} : status;
}

// Returns the status that a stream reports: BP_OK the second time, or the failure that another
// stream reported before.
bp_status told(Runtime& r, bp_stream* stream, bp_status status) {
  if (stream == nullptr) return status;
  const bool is_failure = status != BP_OK && status != BP_TIMEOUT;
  const std::lock_guard lock(r.mutex);
  Memory& memory = memory_of(r);
  if (r.strength == "once") {
    return is_failure && !memory.streams.insert(stream).second ? bp_status{BP_OK} : status;
  }
  if (is_failure) memory.failure = status;
  if (status != BP_OK || memory.failure == BP_OK) return status;
  return r.host.set_error(r.host.self, memory.failure, "a stream of the device has failed");
}

bp_status told_status(void* self, bp_stream* stream) {
  Runtime& r = runtime_of(self);
  return told(r, stream, r.good.streams.status(r.good.streams.self, stream));
}

bp_status told_synchronize(void* self, bp_stream* stream, uint64_t timeout_ns) {
  Runtime& r = runtime_of(self);
  return told(r, stream, r.good.streams.synchronize(r.good.streams.self, stream, timeout_ns));
}

bp_status clear_told(void* self, bp_stream* stream) {
  Runtime& r = runtime_of(self);
  {
    const std::lock_guard lock(r.mutex);
    memory_of(r).streams.erase(stream);
    memory_of(r).failure = BP_OK;
  }
  return r.good.streams.clear_failure(r.good.streams.self, stream);
}

bp_status destroy_told(void* self, bp_stream* stream) {
  Runtime& r = runtime_of(self);
  {
    const std::lock_guard lock(r.mutex);
    memory_of(r).streams.erase(stream);
  }
  return r.good.streams.destroy(r.good.streams.self, stream);
}

bp_status clear_nothing(void* self, bp_stream* stream) {
  const bp_stream_ops& good = runtime_of(self).good.streams;
  return stream == nullptr ? good.clear_failure(good.self, stream) : bp_status{BP_OK};
}

void bend_failures(Runtime& r) {
  start(r);
  if (r.strength == "as_refusal") {
    r.bent.allocator.fill = fill_with_failure;
  } else if (r.strength == "empty") {
    r.bent.allocator.fill = accept_empty_fill;
  } else if (r.strength == "stuck") {
    r.bent.streams.clear_failure = clear_nothing;
  } else if (r.strength == "once" || r.strength == "elsewhere") {
    r.bent.streams.status = told_status;
    r.bent.streams.synchronize = told_synchronize;
    r.bent.streams.clear_failure = clear_told;
    r.bent.streams.destroy = destroy_told;
  } else {
    r.bent.allocator.fill = accept_any_fill;
  }
}

constexpr RuntimeMutant kTable[] = {
    {.id = "24", .bend = start, .launch_stream = launch_elsewhere},
    {.id = "25", .bend = bend_copies},
    {.id = "26", .bend = bend_events},
    {.id = "28", .bend = bend_failures},
};

}  // namespace

std::span<const RuntimeMutant> stream_mutants() { return kTable; }

}  // namespace bp::mutants
