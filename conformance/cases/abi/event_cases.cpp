// Cases for the events of api/include/backplane/stream.h.
#include <atomic>
#include <chrono>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"

namespace bp::conformance {
namespace {

void unknown_flag_is_rejected(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const bp_event_desc desc{
      .struct_size = sizeof(bp_event_desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = 1u << 31};
  bp_event* event = t.sentinel<bp_event>();
  const bp_status status = events.create(events.self, t.target().device, &desc, &event);
  t.expect_refused(status, BP_INVALID_ARGUMENT, "unknown flag");
  if (status == BP_OK) {
    t.require_ok(events.destroy(events.self, event), "destroy");
  } else {
    t.expect_eq(event, t.sentinel<bp_event>(), "out_event after a failure");
  }
}

void null_arguments_are_refused(Context& t) {
  const bp_event_ops& e = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  uint32_t done = 7;
  int64_t elapsed = 7;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  refused(e.create(e.self, t.target().device, nullptr, nullptr), "create: out_event");
  refused(e.record(e.self, nullptr, stream.get()), "record: event");
  refused(e.record(e.self, event.get(), nullptr), "record: stream");
  refused(e.query(e.self, nullptr, &done), "query: event");
  refused(e.query(e.self, event.get(), nullptr), "query: out_done");
  refused(e.synchronize(e.self, nullptr, 0), "synchronize: event");
  refused(e.elapsed_ns(e.self, nullptr, event.get(), &elapsed), "elapsed_ns: start");
  refused(e.signal(e.self, nullptr, BP_OK), "signal: event");
  t.expect(done == 7 && elapsed == 7, "out parameters after failures");
}

void waiting_for_an_unrecorded_event_is_a_no_op(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  t.expect_eq(streams.wait_event(streams.self, stream.get(), event.get()), BP_OK, "wait_event");
  t.expect_eq(streams.synchronize(streams.self, stream.get(), kTimeoutNs), BP_OK, "synchronize");
  uint32_t done = 0;
  t.require_ok(t.target().events->query(t.target().events->self, event.get(), &done), "query");
  t.expect_eq(done, 1u, "query of an event never recorded");
}

void destroy_accepts_null(Context& t) {
  const bp_event_ops& events = *t.target().events;
  t.expect_eq(events.destroy(events.self, nullptr), BP_OK, "event.destroy(NULL)");
}

// A writer is held back. A reader that waits for the writer's event must see the written bytes.
void waiter_starts_after_the_recorded_work(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const bp_allocator_ops& memory = *t.target().allocator;
  constexpr uint64_t kSize = 1 << 16;
  const OwnedStream writer = make_stream(t), reader = make_stream(t);
  const OwnedBuffer source = make_buffer(t, kSize), result = make_buffer(t, kSize);
  const bp_buffer_ref from = range(source, 0, kSize), to = range(result, 0, kSize);
  write(t, writer.get(), from, std::vector<uint8_t>(kSize, 1));
  const OwnedEvent event = make_event(t);
  Gate gate(t);
  gate.hold(writer.get());
  const uint8_t two = 2;
  t.require_ok(memory.fill(memory.self, writer.get(), &from, &two, 1), "fill");
  t.require_ok(events.record(events.self, event.get(), writer.get()), "record");
  t.require_ok(streams.wait_event(streams.self, reader.get(), event.get()), "wait_event");
  t.require_ok(memory.copy(memory.self, reader.get(), &to, &from), "copy");
  t.expect_refused(streams.synchronize(streams.self, reader.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize of the reader while the writer is held back");
  gate.open();
  t.expect(read(t, reader.get(), to) == std::vector<uint8_t>(kSize, 2),
           "the bytes that the reader saw");
  finish(t, writer.get());
}

void destroyed_event_still_orders_its_waiters(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream writer = make_stream(t), reader = make_stream(t);
  const OwnedBuffer source = make_buffer(t, 4096), result = make_buffer(t, 4096);
  const bp_buffer_ref from = range(source, 0, 4096), to = range(result, 0, 4096);
  write(t, writer.get(), from, std::vector<uint8_t>(4096, 1));
  OwnedEvent event = make_event(t);
  Gate gate(t);
  gate.hold(writer.get());
  const uint8_t two = 2;
  t.require_ok(memory.fill(memory.self, writer.get(), &from, &two, 1), "fill");
  t.require_ok(events.record(events.self, event.get(), writer.get()), "record");
  t.require_ok(streams.wait_event(streams.self, reader.get(), event.get()), "wait_event");
  t.expect_eq(events.destroy(events.self, event.release()), BP_OK, "destroy");
  t.require_ok(memory.copy(memory.self, reader.get(), &to, &from), "copy");
  gate.open();
  t.expect(read(t, reader.get(), to) == std::vector<uint8_t>(4096, 2),
           "the bytes that the reader saw");
  finish(t, writer.get());
}

void query_is_never_early(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  Gate gate(t);
  gate.hold(stream.get());
  t.require_ok(events.record(events.self, event.get(), stream.get()), "record");
  uint32_t done = 1;
  t.require_ok(events.query(events.self, event.get(), &done), "query");
  t.expect_eq(done, 0u, "query while the stream is held back");
  t.expect_refused(events.synchronize(events.self, event.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize for a moment");
  gate.open();
  t.expect_eq(events.synchronize(events.self, event.get(), kTimeoutNs), BP_OK, "synchronize");
  t.require_ok(events.query(events.self, event.get(), &done), "query");
  t.expect_eq(done, 1u, "query at the end");
}

void second_record_replaces_the_first(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream quick = make_stream(t), held = make_stream(t);
  const OwnedEvent event = make_event(t);
  t.require_ok(events.record(events.self, event.get(), quick.get()), "first record");
  Gate gate(t);
  gate.hold(held.get());
  t.require_ok(events.record(events.self, event.get(), held.get()), "second record");
  t.expect_refused(events.synchronize(events.self, event.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize waits for the second record");
  gate.open();
  t.expect_eq(events.synchronize(events.self, event.get(), kTimeoutNs), BP_OK, "synchronize");
}

void event_carries_a_failure_to_its_waiters(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED);
  const OwnedEvent event = make_event(t);
  t.require_ok(events.record(events.self, event.get(), failed.get()), "record");
  t.require_ok(streams.clear_failure(streams.self, failed.get()), "clear_failure");
  t.expect_refused(events.synchronize(events.self, event.get(), kTimeoutNs), BP_ABORTED,
                   "synchronize of the event");
  const OwnedStream waiter = make_stream(t);
  // The failure may show at once, or when the waiter reaches the event.
  const bp_status status = streams.wait_event(streams.self, waiter.get(), event.get());
  if (status != BP_OK) t.expect_refused(status, BP_STREAM_FAILED, "wait_event");
  t.expect_refused(streams.synchronize(streams.self, waiter.get(), kTimeoutNs), BP_ABORTED,
                   "synchronize of a waiter");
  t.require_ok(events.record(events.self, event.get(), failed.get()), "record when cleared");
  t.expect_eq(events.synchronize(events.self, event.get(), kTimeoutNs), BP_OK,
              "synchronize when recorded again");
}

void wait_may_come_before_signal(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t, BP_EVENT_HOST_SIGNAL);
  uint32_t done = 1;
  t.require_ok(events.query(events.self, event.get(), &done), "query");
  t.expect_eq(done, 0u, "query before signal");
  t.require_ok(streams.wait_event(streams.self, stream.get(), event.get()), "wait_event");
  t.expect_refused(streams.synchronize(streams.self, stream.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize before signal");
  t.require_ok(events.signal(events.self, event.get(), BP_OK), "signal");
  finish(t, stream.get());
  const OwnedStream late = make_stream(t);
  t.require_ok(streams.wait_event(streams.self, late.get(), event.get()), "wait after signal");
  finish(t, late.get());
}

void host_signalled_events_have_their_own_rules(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent signalled = make_event(t, BP_EVENT_HOST_SIGNAL);
  const OwnedEvent recorded = make_event(t);
  t.expect_refused(events.record(events.self, signalled.get(), stream.get()), BP_INVALID_ARGUMENT,
                   "record of a host-signalled event");
  t.expect_refused(events.signal(events.self, recorded.get(), BP_OK), BP_INVALID_ARGUMENT,
                   "signal of another event");
  t.require_ok(events.signal(events.self, signalled.get(), BP_OK), "signal");
  t.expect_refused(events.signal(events.self, signalled.get(), BP_ABORTED), BP_INVALID_ARGUMENT,
                   "second signal");
  t.expect_eq(events.synchronize(events.self, signalled.get(), kTimeoutNs), BP_OK,
              "the first signal counts");
}

// Records `start` and, 20 ms later, `end`, each on a stream of its own. Checks the time of
// elapsed_ns(), if it gives one.
bp_status check_elapsed_time(Context& t, bp_stream* first, bp_stream* second) {
  const bp_event_ops& events = *t.target().events;
  const OwnedEvent start = make_event(t, BP_EVENT_TIMING), end = make_event(t, BP_EVENT_TIMING);
  t.require_ok(events.record(events.self, start.get(), first), "record start");
  finish(t, first);
  constexpr int64_t kSleepNs = 20'000'000;
  const auto before = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::nanoseconds(kSleepNs));
  t.require_ok(events.record(events.self, end.get(), second), "record end");
  finish(t, second);
  const int64_t most = (std::chrono::steady_clock::now() - before).count();
  int64_t elapsed = -1;
  const bp_status status = events.elapsed_ns(events.self, start.get(), end.get(), &elapsed);
  if (status != BP_OK) return status;
  // The host waited between the two records, so the device's clock advanced too. 1 % is for a
  // difference of the clocks' rates.
  t.expect(elapsed >= kSleepNs - kSleepNs / 100, "at least the time that the host slept");
  t.expect(elapsed <= most + most + 1'000'000'000, "in nanoseconds, not in another unit");
  return status;
}

void elapsed_time_is_right(Context& t) {
  const OwnedStream stream = make_stream(t);
  t.require_ok(check_elapsed_time(t, stream.get(), stream.get()), "elapsed_ns");
}

void elapsed_time_between_devices_is_right_or_refused(Context& t) {
  const std::vector<const bp_target*> devices = devices_of(t);
  if (devices.size() < 2) t.not_supported("the backend has one device");
  const bp_target& other = *devices[devices[0] == &t.target() ? 1 : 0];
  bp_stream* made = nullptr;
  t.require_ok(other.streams->create(other.streams->self, other.device, nullptr, &made),
               "stream.create on another device");
  const OwnedStream here = make_stream(t), there(made, {other.streams});
  const bp_status status = check_elapsed_time(t, here.get(), there.get());
  if (status != BP_OK) t.expect_refused(status, BP_UNSUPPORTED, "elapsed_ns between two devices");
}

void elapsed_time_needs_two_completed_timing_events(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent start = make_event(t, BP_EVENT_TIMING), end = make_event(t, BP_EVENT_TIMING);
  const OwnedEvent plain = make_event(t);
  int64_t elapsed = 7;
  t.require_ok(events.record(events.self, start.get(), stream.get()), "record");
  t.require_ok(events.record(events.self, plain.get(), stream.get()), "record");
  finish(t, stream.get());
  t.expect_refused(events.elapsed_ns(events.self, start.get(), plain.get(), &elapsed),
                   BP_INVALID_ARGUMENT, "an event without timing");
  t.expect_refused(events.elapsed_ns(events.self, start.get(), end.get(), &elapsed),
                   BP_INVALID_ARGUMENT, "an event never recorded");
  Gate gate(t);
  gate.hold(stream.get());
  t.require_ok(events.record(events.self, end.get(), stream.get()), "record");
  t.expect_refused(events.elapsed_ns(events.self, start.get(), end.get(), &elapsed),
                   BP_INVALID_ARGUMENT, "an event that has not completed");
  t.expect_eq(elapsed, int64_t{7}, "out_elapsed_ns after failures");
  gate.open();
  finish(t, stream.get());
}

// ---- Callbacks ----------------------------------------------------------------------------------

// What a callback of an event has seen.
struct Calls {
  std::atomic<int> count = 0;
  std::atomic<bp_status> status = BP_OK;
  std::atomic<bool> holds = false, has_returned = false;

  static void note(void* self, bp_status status) {
    auto& calls = *static_cast<Calls*>(self);
    calls.status = status;
    ++calls.count;
    for (int i = 0; i < 2000 && calls.holds; ++i) pause();
    calls.has_returned = true;
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

  // Waits until a callback has begun.
  void wait_for_begin() const {
    for (int i = 0; i < 10'000 && count == 0; ++i) pause();
  }

  // Waits for the return of a callback that was added.
  void settle() const {
    for (int i = 0; i < 10'000 && !has_returned; ++i) pause();
  }
};

void add_callback(Context& t, const OwnedEvent& event, Calls& calls) {
  const bp_event_ops& events = *t.target().events;
  require_offered(t, events.on_complete(events.self, event.get(), Calls::note, &calls),
                  "on_complete");
}

void callback_runs_when_the_event_has_completed(Context& t) {
  const OwnedStream stream = make_stream(t);
  OwnedEvent event = make_event(t);
  const bp_event_ops& events = *t.target().events;
  Calls calls, at_once;
  add_callback(t, event, at_once);
  at_once.settle();
  t.expect_eq(at_once.count.load(), 1, "callbacks of an event never recorded");
  Gate gate(t);
  gate.hold(stream.get());
  t.require_ok(events.record(events.self, event.get(), stream.get()), "record");
  add_callback(t, event, calls);
  event.reset();
  std::this_thread::sleep_for(std::chrono::nanoseconds(kMomentNs));
  t.expect_eq(calls.count.load(), 0, "callbacks while the recorded work is held back");
  gate.open();
  calls.settle();
  finish(t, stream.get());
  t.expect(calls.count == 1 && calls.status == BP_OK, "the callback ran once, with BP_OK");
  t.expect_refused(events.on_complete(events.self, nullptr, Calls::note, &calls),
                   BP_INVALID_ARGUMENT, "on_complete: event");
  const OwnedEvent other = make_event(t);
  t.expect_refused(events.on_complete(events.self, other.get(), nullptr, nullptr),
                   BP_INVALID_ARGUMENT, "on_complete: callback");
}

void callback_gets_the_failure_of_the_event(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED);
  const OwnedEvent recorded = make_event(t), signalled = make_event(t, BP_EVENT_HOST_SIGNAL);
  Calls of_record, of_signal;
  t.require_ok(events.record(events.self, recorded.get(), failed.get()), "record");
  add_callback(t, recorded, of_record);
  add_callback(t, signalled, of_signal);
  t.expect_eq(of_signal.count.load(), 0, "callbacks before the signal");
  t.require_ok(events.signal(events.self, signalled.get(), BP_INTERNAL), "signal");
  of_record.settle();
  of_signal.settle();
  t.expect(of_record.count == 1 && of_record.status == BP_ABORTED, "the callback of the record");
  t.expect(of_signal.count == 1 && of_signal.status == BP_INTERNAL, "the callback of the signal");
}

void callback_holds_no_stream(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  const OwnedBuffer buffer = make_buffer(t, 64);
  const bp_buffer_ref whole = range(buffer, 0, 64);
  Calls calls;
  calls.holds = true;
  Gate gate(t);
  gate.hold(stream.get());
  t.require_ok(events.record(events.self, event.get(), stream.get()), "record");
  add_callback(t, event, calls);
  gate.open();
  calls.wait_for_begin();
  write(t, stream.get(), whole, std::vector<uint8_t>(64, 3));
  const bool has_returned = calls.has_returned;
  calls.holds = false;
  calls.settle();
  t.expect(!has_returned, "the work behind the record ended before the callback returned");
  t.expect_eq(calls.count.load(), 1, "callbacks that ran");
}

}  // namespace

void add_event_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "event",
      {
          {"unknown_flag_is_rejected", {"EVENT-8", "ERROR-1", "ERROR-2"}, unknown_flag_is_rejected},
          {"null_arguments_are_refused", {"ERROR-3", "ERROR-2"}, null_arguments_are_refused},
          {"waiting_for_an_unrecorded_event_is_a_no_op",
           {"EVENT-1", "EVENT-10"},
           waiting_for_an_unrecorded_event_is_a_no_op},
          {"destroy_accepts_null", {"EVENT-4"}, destroy_accepts_null},
          {"waiter_starts_after_the_recorded_work",
           {"EVENT-2"},
           waiter_starts_after_the_recorded_work},
          {"destroyed_event_still_orders_its_waiters",
           {"EVENT-3"},
           destroyed_event_still_orders_its_waiters},
          {"query_is_never_early", {"EVENT-10"}, query_is_never_early},
          {"second_record_replaces_the_first", {"EVENT-2"}, second_record_replaces_the_first},
          {"event_carries_a_failure_to_its_waiters",
           {"EVENT-5", "EVENT-6"},
           event_carries_a_failure_to_its_waiters},
          {"wait_may_come_before_signal", {"EVENT-7"}, wait_may_come_before_signal},
          {"host_signalled_events_have_their_own_rules",
           {"EVENT-9", "EVENT-12"},
           host_signalled_events_have_their_own_rules},
          {"elapsed_time_is_right", {"EVENT-11"}, elapsed_time_is_right},
          {"elapsed_time_between_devices_is_right_or_refused",
           {"EVENT-14"},
           elapsed_time_between_devices_is_right_or_refused},
          {"elapsed_time_needs_two_completed_timing_events",
           {"EVENT-11"},
           elapsed_time_needs_two_completed_timing_events},
          {"callback_runs_when_it_has_completed",
           {"EVENT-15", "ERROR-3"},
           callback_runs_when_the_event_has_completed},
          {"callback_gets_its_failure", {"EVENT-15"}, callback_gets_the_failure_of_the_event},
          {"callback_holds_no_stream", {"EVENT-16"}, callback_holds_no_stream},
      });
}

}  // namespace bp::conformance
