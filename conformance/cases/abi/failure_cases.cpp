// Cases for failures that come after the call: where, to whom and how often they are reported, and
// how they end.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/child_routines.hpp"
#include "conformance/cases/fixtures/provocation.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 256;

bp_status fill(Context& t, bp_stream* stream, const bp_buffer_ref& to, uint8_t value) {
  const bp_allocator_ops& memory = *t.target().allocator;
  return memory.fill(memory.self, stream, &to, &value, 1);
}

std::vector<uint8_t> all(uint8_t value) { return std::vector<uint8_t>(kSize, value); }

void is_told_to_each_reader(Context& t, Provocation& provocation) {
  const OwnedStream stream = failed_stream(t, provocation);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const bp_buffer_ref whole = range(buffer, 0, kSize);
  const bp_allocator_ops& memory = *t.target().allocator;
  std::vector<uint8_t> bytes(kSize);
  for (int i = 0; i < 3; ++i) {
    t.expect_refused(status_of(t, stream.get()), provocation.failure(), "status");
    t.expect_refused(synchronize(t, stream.get()), provocation.failure(), "synchronize");
    t.expect_refused(memory.copy_to_host(memory.self, stream.get(), bytes.data(), &whole,
                                         BP_BORROW_DURING_CALL, UINT64_MAX),
                     BP_STREAM_FAILED, "copy_to_host");
  }
}

// The failure shows while the call waits.
void ends_a_blocking_copy(Context& t, Provocation& provocation) {
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const bp_buffer_ref whole = range(buffer, 0, kSize);
  const bp_allocator_ops& memory = *t.target().allocator;
  std::vector<uint8_t> bytes(kSize);
  Gate gate(t);
  gate.hold(stream.get());
  provocation.submit(stream.get());
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kMomentNs));
    gate.open();
  });
  const bp_status status = memory.copy_to_host(memory.self, stream.get(), bytes.data(), &whole,
                                               BP_BORROW_DURING_CALL, UINT64_MAX);
  opener.join();
  t.expect_refused(status, BP_STREAM_FAILED, "copy_to_host behind work that fails meanwhile");
  t.expect_refused(status_of(t, stream.get()), provocation.failure(), "status");
}

void stays_on_its_stream(Context& t, Provocation& provocation) {
  const OwnedStream before = make_stream(t);
  const OwnedStream failed = failed_stream(t, provocation);
  const OwnedStream behind = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const bp_device_ops& devices = *t.target().devices;
  uint8_t value = 1;
  for (bp_stream* stream : {before.get(), behind.get(), t.target().default_stream}) {
    t.expect_eq(status_of(t, stream), BP_OK, "status of another stream");
    t.expect_eq(synchronize(t, stream), BP_OK, "synchronize of another stream");
    t.require_ok(fill(t, stream, range(buffer, 0, kSize), ++value), "fill on another stream");
    t.expect(read(t, stream, range(buffer, 0, kSize)) == all(value),
             "the bytes that another stream wrote");
  }
  t.expect_eq(devices.synchronize(devices.self, t.target().device, kTimeoutNs), BP_OK,
              "synchronize of the device");
  t.expect_refused(status_of(t, failed.get()), provocation.failure(), "status of the failed one");
}

void stops_what_is_submitted_later(Context& t, Provocation& provocation) {
  const OwnedStream other = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  write(t, other.get(), range(buffer, 0, kSize), all(1));
  const OwnedStream stream = failed_stream(t, provocation);
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_buffer_ref front = range(buffer, 0, 64), back = range(buffer, 128, 64);
  const std::vector<uint8_t> bytes = all(3);
  t.expect_refused(fill(t, stream.get(), range(buffer, 0, kSize), 2), BP_STREAM_FAILED,
                   "fill on a failed stream");
  t.expect_refused(memory.copy(memory.self, stream.get(), &front, &back), BP_STREAM_FAILED,
                   "copy on a failed stream");
  t.expect_refused(
      memory.copy_from_host(memory.self, stream.get(), &front, bytes.data(), BP_BORROW_DURING_CALL),
      BP_STREAM_FAILED, "copy_from_host on a failed stream");
  t.expect(read(t, other.get(), range(buffer, 0, kSize)) == all(1), "nothing of it ran");
}

// One of the two classes of failure also ends the work that is already queued.
void stops_what_is_queued_behind_it(Context& t, Provocation& provocation) {
  if (!provocation.stops_the_queue()) return;
  const OwnedStream stream = make_stream(t), other = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  write(t, other.get(), range(buffer, 0, kSize), all(1));
  Gate gate(t);
  gate.hold(stream.get());
  t.require_ok(fill(t, stream.get(), range(buffer, 0, 128), 2), "fill before it");
  provocation.submit(stream.get());
  t.require_ok(fill(t, stream.get(), range(buffer, 128, 128), 3), "a fill behind the failed work");
  gate.open();
  t.expect_refused(synchronize(t, stream.get()), provocation.failure(), "synchronize");
  std::vector<uint8_t> expected = all(1);
  std::fill_n(expected.begin(), 128, uint8_t{2});
  t.expect(read(t, other.get(), range(buffer, 0, kSize)) == expected,
           "the work before the failure ran, and the work queued behind it did not");
}

void ends_with_clear_failure(Context& t, Provocation& provocation) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const OwnedStream stream = make_stream(t);
  for (uint8_t round = 1; round <= 3; ++round) {
    provocation.submit(stream.get());
    t.expect_refused(synchronize(t, stream.get()), provocation.failure(), "synchronize");
    t.require_ok(streams.clear_failure(streams.self, stream.get()), "clear_failure");
    t.expect_eq(status_of(t, stream.get()), BP_OK, "status when cleared");
    t.require_ok(fill(t, stream.get(), range(buffer, 0, kSize), round), "fill when cleared");
    t.expect(read(t, stream.get(), range(buffer, 0, kSize)) == all(round), "it ran");
    t.require_ok(streams.clear_failure(streams.self, stream.get()), "clear_failure of nothing");
  }
}

void travels_with_events(Context& t, Provocation& provocation) {
  const bp_stream_ops& streams = *t.target().streams;
  const bp_event_ops& events = *t.target().events;
  const OwnedStream first = make_stream(t), second = make_stream(t), third = make_stream(t);
  const OwnedEvent of_first = make_event(t), of_second = make_event(t);
  Gate gate(t);
  gate.hold(first.get());
  provocation.submit(first.get());
  t.require_ok(events.record(events.self, of_first.get(), first.get()), "record");
  t.require_ok(streams.wait_event(streams.self, second.get(), of_first.get()), "wait_event");
  t.require_ok(events.record(events.self, of_second.get(), second.get()), "record");
  t.require_ok(streams.wait_event(streams.self, third.get(), of_second.get()), "wait_event");
  t.expect_eq(status_of(t, third.get()), BP_OK, "status while all are held back");
  gate.open();
  for (const OwnedStream* stream : {&third, &second, &first}) {
    t.expect_refused(synchronize(t, stream->get()), provocation.failure(),
                     "synchronize of one that waits for the failure");
  }
  for (const OwnedEvent* event : {&of_first, &of_second}) {
    t.expect_refused(events.synchronize(events.self, event->get(), kTimeoutNs),
                     provocation.failure(), "synchronize of an event");
  }
  t.require_ok(streams.clear_failure(streams.self, first.get()), "clear_failure");
  t.expect_refused(status_of(t, second.get()), provocation.failure(), "a waiter keeps its own");
  t.expect_refused(events.synchronize(events.self, of_first.get(), kTimeoutNs),
                   provocation.failure(), "an event keeps its own");
  t.require_ok(events.record(events.self, of_first.get(), first.get()), "record when cleared");
  t.expect_eq(events.synchronize(events.self, of_first.get(), kTimeoutNs), BP_OK,
              "synchronize of an event that was recorded again");
}

struct CallbackLog {
  std::atomic<int> runs = 0;
  std::atomic<bp_status> status = -1;
};

void callback_gets_it_once(Context& t, Provocation& provocation) {
  const bp_stream_ops& streams = *t.target().streams;
  CallbackLog logs[3];  // The logs outlive the stream, and so its callbacks.
  const OwnedStream stream = make_stream(t);
  const auto add = [&](CallbackLog& log) {
    t.require_ok(streams.add_callback(
                     streams.self, stream.get(),
                     [](void* data, bp_status status) {
                       auto& l = *static_cast<CallbackLog*>(data);
                       l.status = status;
                       ++l.runs;
                     },
                     &log),
                 "add_callback");
  };
  Gate gate(t);
  gate.hold(stream.get());
  add(logs[0]);
  provocation.submit(stream.get());
  add(logs[1]);
  gate.open();
  t.expect_refused(synchronize(t, stream.get()), provocation.failure(), "synchronize");
  add(logs[2]);
  t.expect_refused(synchronize(t, stream.get()), provocation.failure(), "synchronize again");
  const bp_status expected[] = {BP_OK, provocation.failure(), provocation.failure()};
  for (size_t i = 0; i < 3; ++i) {
    for (int k = 0; k < 5000 && logs[i].runs == 0; ++k) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    t.expect_eq(logs[i].runs.load(), 1, "runs of a callback");
    t.expect_status(logs[i].status.load(), expected[i], "the status that a callback gets");
  }
}

void two_threads_both_see_it(Context& t, Provocation& provocation) {
  for (int round = 0; round < 10; ++round) {
    const OwnedStream stream = make_stream(t);
    Gate gate(t);
    gate.hold(stream.get());
    provocation.submit(stream.get());
    bp_status seen[4] = {};
    bool has_text[4] = {};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        seen[i] = synchronize(t, stream.get());
        has_text[i] = bp_error_text()[0] != '\0';
      });
    }
    gate.open();
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < 4; ++i) {
      t.expect_eq(seen[i], provocation.failure(), "synchronize on one of four threads");
      t.expect(has_text[i], "each thread has the text of the failure");
    }
    if (t.has_failed()) return;
  }
}

// Work behind the failed work may fail too, but must not replace the first failure.
void first_failure_counts(Context& t, Provocation& provocation) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  constexpr bp_status kOther = BP_TIMEOUT;
  t.require(provocation.failure() != kOther, "the two failures differ");
  Gate first(t), second(t);
  first.hold(stream.get());
  provocation.submit(stream.get());
  second.hold(stream.get());
  t.expect_eq(status_of(t, stream.get()), BP_OK, "status while it is held back");
  second.open(kOther);
  first.open();
  t.expect_refused(synchronize(t, stream.get()), provocation.failure(), "synchronize");
  t.expect_refused(streams.status(streams.self, stream.get()), provocation.failure(), "status");
}

void destroy_succeeds_all_the_same(Context& t, Provocation& provocation) {
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream other = make_stream(t);
  OwnedStream failed = failed_stream(t, provocation);
  t.expect_eq(streams.destroy(streams.self, failed.release()), BP_OK, "destroy of a failed stream");
  OwnedStream held = make_stream(t);
  Gate gate(t);
  gate.hold(held.get());
  provocation.submit(held.get());
  t.expect_eq(streams.destroy(streams.self, held.release()), BP_OK,
              "destroy of a stream that is about to fail");
  gate.open();
  finish(t, other.get(), "synchronize of another stream");
  const bp_device_ops& devices = *t.target().devices;
  t.expect_eq(devices.synchronize(devices.self, t.target().device, kTimeoutNs), BP_OK,
              "synchronize of the device");
  t.expect_eq(status_of(t, other.get()), BP_OK, "status of another stream");
}

}  // namespace

void add_failure_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "failure",
      {
          {"is_told_to_each_reader",
           {"STREAM-9", "STREAM-10", "MEMORY-10"},
           with_each<is_told_to_each_reader>},
          {"stays_on_its_stream", {"STREAM-9", "DEVICE-8"}, with_each<stays_on_its_stream>},
          {"ends_a_blocking_copy", {"MEMORY-10"}, with_each<ends_a_blocking_copy>},
          {"stops_what_is_submitted_later", {"STREAM-8"}, with_each<stops_what_is_submitted_later>},
          {"stops_what_is_queued_behind_it",
           {"STREAM-8"},
           with_each<stops_what_is_queued_behind_it>},
          {"ends_with_clear_failure", {"STREAM-13"}, with_each<ends_with_clear_failure>},
          {"travels_with_events", {"EVENT-5", "EVENT-6"}, with_each<travels_with_events>},
          {"callback_gets_it_once", {"STREAM-15"}, with_each<callback_gets_it_once>},
          {"two_threads_both_see_it", {"STREAM-9", "ERROR-1"}, with_each<two_threads_both_see_it>},
          {"first_failure_counts", {"STREAM-9"}, with_each<first_failure_counts>},
          {"destroy_succeeds_all_the_same",
           {"STREAM-11"},
           with_each<destroy_succeeds_all_the_same>},
          {"lost_device_says_so_until_it_is_reset",
           {"DEVICE-9", "DEVICE-10", "DEVICE-11", "STREAM-11", "STREAM-19", "ERROR-1"},
           [](Context& t) { run_in_child(t, "lose_and_reset"); }},
          {"allocations_fail_one_by_one",
           {"MEMORY-4", "ERROR-2"},
           [](Context& t) { run_in_child(t, "fail_allocations"); }},
      });
}

}  // namespace bp::conformance
