// Cases for the order between streams. They hold work back, because wrong order is invisible at
// normal speed.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/streams/addition.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;

void fill(Context& t, bp_stream* stream, const bp_buffer_ref& to, uint8_t value) {
  const bp_allocator_ops& memory = *t.target().allocator;
  t.require_ok(memory.fill(memory.self, stream, &to, &value, 1), "fill");
}

void copy(Context& t, bp_stream* stream, const bp_buffer_ref& to, const bp_buffer_ref& from) {
  const bp_allocator_ops& memory = *t.target().allocator;
  t.require_ok(memory.copy(memory.self, stream, &to, &from), "copy");
}

void record(Context& t, const OwnedEvent& event, const OwnedStream& stream) {
  const bp_event_ops& events = *t.target().events;
  t.require_ok(events.record(events.self, event.get(), stream.get()), "record");
}

void wait_for(Context& t, const OwnedStream& stream, const OwnedEvent& event) {
  const bp_stream_ops& streams = *t.target().streams;
  t.require_ok(streams.wait_event(streams.self, stream.get(), event.get()), "wait_event");
}

bool is_done(Context& t, const OwnedEvent& event) {
  const bp_event_ops& events = *t.target().events;
  uint32_t done = 2;
  t.require_ok(events.query(events.self, event.get(), &done), "event.query");
  return done == 1;
}

std::vector<uint8_t> all(uint8_t value, uint64_t size = kSize) {
  return std::vector<uint8_t>(size, value);
}

// There is one writer, eight readers that wait for it, and one stream that waits for all readers.
void work_fans_out_and_in(Context& t) {
  constexpr size_t kReaders = 8;
  const OwnedStream writer = make_stream(t), joint = make_stream(t);
  const OwnedBuffer source = make_buffer(t, kSize), parts = make_buffer(t, kReaders * kSize),
                    result = make_buffer(t, kReaders * kSize);
  write(t, writer.get(), range(source, 0, kSize), all(1));
  const OwnedEvent written = make_event(t);
  std::vector<OwnedStream> readers;
  std::vector<OwnedEvent> ends;
  Gate first(t), second(t);
  first.hold(writer.get());
  fill(t, writer.get(), range(source, 0, kSize), 2);
  record(t, written, writer);
  for (size_t i = 0; i < kReaders; ++i) {
    readers.push_back(make_stream(t));
    ends.push_back(make_event(t));
    if (i == kReaders / 2) second.hold(readers.back().get());
    wait_for(t, readers.back(), written);
    copy(t, readers.back().get(), range(parts, i * kSize, kSize), range(source, 0, kSize));
    record(t, ends.back(), readers.back());
  }
  for (const OwnedEvent& end : ends) wait_for(t, joint, end);
  copy(t, joint.get(), range(result, 0, kReaders * kSize), range(parts, 0, kReaders * kSize));
  first.open();
  second.open();
  t.expect(read(t, joint.get(), range(result, 0, kReaders * kSize)) == all(2, kReaders * kSize),
           "the bytes after the streams were joined");
  finish(t, writer.get());
}

// A record after a wait does not affect the wait.
void wait_takes_the_latest_record_before_it(Context& t) {
  const OwnedStream quick = make_stream(t), held = make_stream(t), waiter = make_stream(t);
  const OwnedEvent event = make_event(t);
  Gate gate(t);
  record(t, event, quick);
  wait_for(t, waiter, event);
  gate.hold(held.get());
  record(t, event, held);
  finish(t, waiter.get(), "synchronize of a stream that waits for the first record alone");
  t.expect(!is_done(t, event), "the second record has not completed");
  gate.open();
  finish(t, held.get());
  t.expect(is_done(t, event), "the second record has completed");
}

// If an event is recorded twice, the second record counts, even if the first one ends later or no
// stream waited for it.
void wait_takes_the_second_of_two_records(Context& t) {
  const OwnedStream early = make_stream(t), late = make_stream(t), waiter = make_stream(t);
  const OwnedBuffer source = make_buffer(t, kSize), result = make_buffer(t, kSize);
  write(t, late.get(), range(source, 0, kSize), all(1));
  const OwnedEvent event = make_event(t);
  Gate gate(t);
  record(t, event, early);
  gate.hold(late.get());
  fill(t, late.get(), range(source, 0, kSize), 2);
  record(t, event, late);
  wait_for(t, waiter, event);
  copy(t, waiter.get(), range(result, 0, kSize), range(source, 0, kSize));
  const bp_stream_ops& streams = *t.target().streams;
  t.expect_refused(streams.synchronize(streams.self, waiter.get(), kMomentNs), BP_TIMEOUT,
                   "synchronize of the waiter while the second record is held back");
  gate.open();
  t.expect(read(t, waiter.get(), range(result, 0, kSize)) == all(2),
           "the bytes that the waiter saw");
}

// Two events mark one stream: a wait for the first mark must not wait for the second, and a wait
// for the second must wait for all work before it.
void records_on_one_stream_are_apart(Context& t) {
  const OwnedStream stream = make_stream(t);
  const OwnedEvent before = make_event(t), behind = make_event(t);
  Gate first(t), second(t);
  first.hold(stream.get());
  record(t, before, stream);
  second.hold(stream.get());
  record(t, behind, stream);
  t.expect(!is_done(t, before) && !is_done(t, behind), "both are held back");
  first.open();
  const bp_event_ops& events = *t.target().events;
  t.require_ok(events.synchronize(events.self, before.get(), kTimeoutNs), "synchronize");
  t.expect(!is_done(t, behind), "the one behind is still held back");
  t.expect(is_done(t, before), "the first stays complete");
  second.open();
  t.require_ok(events.synchronize(events.self, behind.get(), kTimeoutNs), "synchronize");
  finish(t, stream.get());
}

// A complete event stays complete until it is recorded again.
void event_stays_complete_until_recorded_again(Context& t) {
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  for (int round = 0; round < 20; ++round) {
    Gate gate(t);
    gate.hold(stream.get());
    record(t, event, stream);
    t.require(!is_done(t, event), "an event recorded again, whose stream is held back");
    gate.open();
    while (!is_done(t, event)) std::this_thread::yield();
    for (int i = 0; i < 50; ++i) t.require(is_done(t, event), "a complete event, asked again");
    finish(t, stream.get());
  }
}

// Reads a byte that the device may write at the same time. Nothing orders the two on purpose, so a
// thread sanitizer must not report it.
__attribute__((no_sanitize("thread"), noinline)) uint8_t peek(const volatile uint8_t& place) {
  return place;
}

// Copies one byte into `place` behind a gate. The host must then see the byte without asking the
// backend.
void expect_progress(Context& t, const char* what, void (*call)(Context&, bp_stream*)) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 64);
  write(t, stream.get(), range(buffer, 0, 64), all(5, 64));
  volatile uint8_t place = 0;
  const bp_buffer_ref from = range(buffer, 0, 1);
  t.require_ok(memory.copy_to_host(memory.self, stream.get(), const_cast<uint8_t*>(&place), &from,
                                   BP_BORROW_UNTIL_COMPLETE, UINT64_MAX),
               "copy_to_host");
  call(t, stream.get());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kTimeoutNs);
  while (peek(place) != 5 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  t.expect(peek(place) == 5, std::string("work completes by itself after ") + what);
  finish(t, stream.get());
}

void each_call_that_promises_progress_gives_it(Context& t) {
  expect_progress(t, "flush", [](Context& c, bp_stream* stream) {
    c.require_ok(c.target().streams->flush(c.target().streams->self, stream), "flush");
  });
  expect_progress(t, "query", [](Context& c, bp_stream* stream) {
    uint32_t done = 0;
    c.require_ok(c.target().streams->query(c.target().streams->self, stream, &done), "query");
  });
  expect_progress(t, "synchronize that only looks", [](Context& c, bp_stream* stream) {
    static_cast<void>(c.target().streams->synchronize(c.target().streams->self, stream, 0));
    bp_error_clear();
  });
  expect_progress(t, "record", [](Context& c, bp_stream* stream) {
    const OwnedEvent event = make_event(c);
    c.require_ok(c.target().events->record(c.target().events->self, event.get(), stream), "record");
  });
  expect_progress(t, "add_callback", [](Context& c, bp_stream* stream) {
    const bp_stream_ops& streams = *c.target().streams;
    c.require_ok(streams.add_callback(
                     streams.self, stream, [](void*, bp_status) {}, nullptr),
                 "add_callback");
  });
}

// A priority is only a hint: in a chain of copies over three streams, each copy sees the one before
// it.
void priorities_do_not_change_order(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  std::vector<OwnedStream> all_streams;
  for (const int32_t priority : {-5, 0, 7}) {
    const bp_stream_desc desc{.struct_size = sizeof(bp_stream_desc),
                              .struct_type = BP_STRUCT_STREAM_DESC,
                              .priority = priority};
    bp_stream* stream = nullptr;
    t.require_ok(streams.create(streams.self, t.target().device, &desc, &stream), "create");
    all_streams.emplace_back(stream, StreamEnd{&streams});
  }
  const OwnedBuffer buffer = make_buffer(t, 31 * kSize);
  const OwnedEvent event = make_event(t);
  write(t, all_streams[0].get(), range(buffer, 0, 31 * kSize), all(0, 31 * kSize));
  Gate gate(t);
  gate.hold(all_streams[0].get());
  fill(t, all_streams[0].get(), range(buffer, 0, kSize), 9);
  for (uint64_t i = 0; i < 30; ++i) {
    const OwnedStream& stream = all_streams[i % 3];
    if (i > 0) wait_for(t, stream, event);
    copy(t, stream.get(), range(buffer, (i + 1) * kSize, kSize), range(buffer, i * kSize, kSize));
    record(t, event, stream);
  }
  gate.open();
  t.require_ok(t.target().events->synchronize(t.target().events->self, event.get(), kTimeoutNs),
               "synchronize");
  t.expect(read(t, all_streams[1].get(), range(buffer, 30 * kSize, kSize)) == all(9),
           "the end of the chain");
  for (const OwnedStream& stream : all_streams) finish(t, stream.get());
}

// The backend stages each source: hundreds of copies read one place, whose contents change in
// between.
void sources_of_many_copies_are_kept_apart(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  constexpr uint64_t kCopies = 200, kPart = 777;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kCopies * kPart);
  std::vector<uint8_t> source(kPart), expected;
  Gate gate(t);
  gate.hold(stream.get());
  for (uint64_t i = 0; i < kCopies; ++i) {
    source = random_bytes(t, kPart, i);
    expected.insert(expected.end(), source.begin(), source.end());
    const bp_buffer_ref to = range(buffer, i * kPart, kPart);
    t.require_ok(
        memory.copy_from_host(memory.self, stream.get(), &to, source.data(), BP_BORROW_DURING_CALL),
        "copy_from_host");
    std::ranges::fill(source, uint8_t{0xBB});
  }
  gate.open();
  t.expect(read(t, stream.get(), range(buffer, 0, kCopies * kPart)) == expected,
           "each copy has the bytes of its own call");
}

// The default stream may be inline, but must queue work behind a wait.
void default_stream_queues_behind_a_wait(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  bp_stream* const stream = t.target().default_stream;
  const OwnedStream other = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  write(t, stream, range(buffer, 0, kSize), all(1));
  Gate gate(t);
  gate.hold(stream);
  fill(t, stream, range(buffer, 0, kSize), 2);
  uint32_t done = 1;
  t.require_ok(streams.query(streams.self, stream, &done), "query");
  t.expect_eq(done, 0u, "query of the default stream while it waits");
  t.expect(read(t, other.get(), range(buffer, 0, kSize)) == all(1),
           "the buffer while the default stream waits");
  gate.open();
  finish(t, stream);
  t.expect(read(t, stream, range(buffer, 0, kSize)) == all(2), "the buffer at the end");
}

// A callback of one stream signals the event that another stream waits for. If that wait kept the
// callback from running, it would never end.
void callback_lets_another_stream_go(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  struct Signal {
    const bp_event_ops* events;
    bp_event* event;
    std::atomic<bp_status> status = -1;
  };
  std::vector<OwnedStream> waiters;
  const OwnedStream signaller = make_stream(t);
  const OwnedEvent event = make_event(t, BP_EVENT_HOST_SIGNAL);
  Signal signal{t.target().events, event.get()};
  for (int i = 0; i < 6; ++i) {
    waiters.push_back(make_stream(t));
    wait_for(t, waiters.back(), event);
    t.require_ok(streams.flush(streams.self, waiters.back().get()), "flush");
  }
  t.require_ok(streams.add_callback(
                   streams.self, signaller.get(),
                   [](void* data, bp_status) {
                     auto& s = *static_cast<Signal*>(data);
                     s.status = s.events->signal(s.events->self, s.event, BP_OK);
                   },
                   &signal),
               "add_callback");
  finish(t, signaller.get());
  t.expect_eq(signal.status.load(), BP_OK, "signal in a callback");
  for (const OwnedStream& waiter : waiters) finish(t, waiter.get(), "synchronize of a waiter");
}

// A kernel is work of the stream that it was given, and of no other stream.
void kernel_runs_on_the_stream_it_was_given(Context& t) {
  constexpr uint64_t kCount = 1024;
  const Addition addition = find_addition(t);
  const OwnedStream stream = make_stream(t), other = make_stream(t);
  const OwnedBuffer buffer_a = make_buffer(t, kSize), buffer_y = make_buffer(t, kSize);
  const bp_buffer_ref a = range(buffer_a, 0, kSize), y = range(buffer_y, 0, kSize);
  write(t, other.get(), a, addition.numbers(kCount, 1));
  write(t, other.get(), y, addition.numbers(kCount, 100));
  Gate gate(t);
  gate.hold(stream.get());
  addition.launch(t, stream.get(), y, a, a);
  t.expect(read(t, other.get(), y) == addition.numbers(kCount, 100),
           "the output while the stream of the kernel is held back");
  addition.launch(t, stream.get(), a, y, y);
  gate.open();
  t.expect(read(t, stream.get(), y) == addition.numbers(kCount, 2),
           "the output of the first kernel");
  t.expect(read(t, stream.get(), a) == addition.numbers(kCount, 4),
           "the output of the second kernel, which overwrote the input of the first");
}

// Kernels and copies alternate 50 times, and all of them are submitted beforehand.
void kernels_and_copies_alternate_in_order(Context& t) {
  constexpr uint64_t kCount = 1024;
  const Addition addition = find_addition(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffers[] = {make_buffer(t, kSize), make_buffer(t, kSize),
                                 make_buffer(t, kSize)};
  const bp_buffer_ref one = range(buffers[0], 0, kSize), sum = range(buffers[1], 0, kSize),
                      next = range(buffers[2], 0, kSize);
  write(t, stream.get(), one, addition.numbers(kCount, 1));
  write(t, stream.get(), sum, addition.numbers(kCount, 0));
  Gate gate(t);
  gate.hold(stream.get());
  for (int i = 0; i < 50; ++i) {
    addition.launch(t, stream.get(), next, sum, one);
    fill(t, stream.get(), sum, 0xFF);
    copy(t, stream.get(), sum, next);
  }
  gate.open();
  t.expect(read(t, stream.get(), sum) == addition.numbers(kCount, 50), "the sum of 50 launches");
}

}  // namespace

void add_stream_order_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "stream",
      {
          {"work_fans_out_and_in", {"EVENT-2"}, work_fans_out_and_in},
          {"wait_takes_the_latest_record_before_it",
           {"EVENT-2"},
           wait_takes_the_latest_record_before_it},
          {"wait_takes_the_second_of_two_records",
           {"EVENT-2"},
           wait_takes_the_second_of_two_records},
          {"records_on_one_stream_are_apart", {"EVENT-10"}, records_on_one_stream_are_apart},
          {"event_stays_complete_until_recorded_again",
           {"EVENT-10"},
           event_stays_complete_until_recorded_again},
          {"each_call_that_promises_progress_gives_it",
           {"STREAM-12"},
           each_call_that_promises_progress_gives_it},
          {"priorities_do_not_change_order", {"EVENT-2"}, priorities_do_not_change_order},
          {"sources_of_many_copies_are_kept_apart",
           {"MEMORY-9"},
           sources_of_many_copies_are_kept_apart},
          {"default_stream_queues_behind_a_wait",
           {"STREAM-4"},
           default_stream_queues_behind_a_wait},
          {"callback_lets_another_stream_go",
           {"EVENT-7", "STREAM-15"},
           callback_lets_another_stream_go},
          {"kernel_runs_on_the_stream_it_was_given",
           {"STREAM-3"},
           kernel_runs_on_the_stream_it_was_given},
          {"kernels_and_copies_alternate_in_order",
           {"STREAM-3"},
           kernels_and_copies_alternate_in_order},
      });
}

}  // namespace bp::conformance
