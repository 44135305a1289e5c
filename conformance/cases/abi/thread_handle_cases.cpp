// Cases for handles that are made and ended while other threads use their own handles.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/thread_fixtures.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;

// The handles that one thread of handles_come_and_go makes and ends in a round.
struct Turn {
  const bp_target& target;
  ThreadReport& report;
  bp_stream *writer = nullptr, *reader = nullptr;
  bp_event* event = nullptr;
  bp_buffer* buffer = nullptr;

  bool make(uint64_t size_bytes) {
    const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = size_bytes};
    const bp_stream_ops& streams = *target.streams;
    const bp_event_ops& events = *target.events;
    const bp_allocator_ops& memory = *target.allocator;
    return report.ok(streams.create(streams.self, target.device, nullptr, &writer), "create") &&
           report.ok(streams.create(streams.self, target.device, nullptr, &reader), "create") &&
           report.ok(events.create(events.self, target.device, nullptr, &event), "event.create") &&
           report.ok(memory.allocate(memory.self, target.device, &desc, &buffer), "allocate");
  }

  // Writes on one stream, reads on the other, and ends each handle as soon as that is allowed.
  bool use_and_end(std::vector<uint8_t>& bytes, uint8_t value, std::atomic<int>& callbacks) {
    const bp_stream_ops& streams = *target.streams;
    const bp_event_ops& events = *target.events;
    const bp_allocator_ops& memory = *target.allocator;
    const bp_buffer_ref whole{buffer, 0, bytes.size()};
    return report.ok(memory.fill(memory.self, writer, &whole, &value, 1), "fill") &&
           report.ok(events.record(events.self, event, writer), "record") &&
           report.ok(streams.add_callback(streams.self, writer, count_callback, &callbacks),
                     "callback") &&
           report.ok(streams.wait_event(streams.self, reader, event), "wait_event") &&
           report.ok(events.destroy(events.self, event), "event.destroy") &&
           report.ok(streams.destroy(streams.self, writer), "stream.destroy") &&
           report.ok(memory.copy_to_host(memory.self, reader, bytes.data(), &whole,
                                         BP_BORROW_DURING_CALL, UINT64_MAX),
                     "copy_to_host") &&
           report.ok(memory.deallocate(memory.self, buffer, reader), "deallocate") &&
           report.ok(streams.destroy(streams.self, reader), "stream.destroy");
  }
};

// Threads make and end streams, events and buffers while other threads do the same.
void handles_come_and_go(Context& t) {
  constexpr int kRounds = 40;
  std::atomic<int> callbacks = 0;
  ThreadReport report;
  on_threads([&](int thread) {
    std::mt19937_64 random(t.seed() + static_cast<uint64_t>(thread));
    for (int round = 0; round < kRounds; ++round) {
      std::vector<uint8_t> bytes(1 + random() % 20000);
      const auto value = static_cast<uint8_t>(random());
      Turn turn{t.target(), report};
      if (!turn.make(bytes.size()) || !turn.use_and_end(bytes, value, callbacks)) return;
      const bool is_right = std::ranges::count(bytes, value) == std::ssize(bytes);
      if (!is_right) report.add("a thread read bytes that it did not write");
    }
  });
  for (int i = 0; i < 5000 && callbacks < kThreads * kRounds; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  report.tell(t);
  t.expect_eq(callbacks.load(), kThreads * kRounds, "callbacks that ran, once each");
}

// Handles outlive the thread that made them.
void handles_outlive_their_thread(Context& t) {
  const bp_target& target = t.target();
  const bp_allocator_ops& memory = *target.allocator;
  bp_stream* stream = nullptr;
  bp_buffer* buffer = nullptr;
  ThreadReport report;
  std::thread([&] {
    const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = kSize};
    const uint8_t value = 0x42;
    if (!report.ok(target.streams->create(target.streams->self, target.device, nullptr, &stream),
                   "create") ||
        !report.ok(memory.allocate(memory.self, target.device, &desc, &buffer), "allocate")) {
      return;
    }
    const bp_buffer_ref whole{buffer, 0, kSize};
    report.ok(memory.fill(memory.self, stream, &whole, &value, 1), "fill");
  }).join();
  const OwnedStream stream_end(stream, {target.streams});
  const OwnedBuffer buffer_end(buffer, {target.allocator});
  report.tell(t);
  t.expect(read(t, stream, range(buffer_end, 0, kSize)) == std::vector<uint8_t>(kSize, 0x42),
           "the work of a thread that has ended");
  finish(t, stream);
}

// A chain of streams that all wait for a gate. Each stream has a buffer that it frees.
struct Chain {
  static constexpr uint64_t kLength = 4;
  std::vector<OwnedStream> streams;
  std::vector<OwnedEvent> events;

  void add(Context& t, Gate& gate, const bp_buffer_ref& to, uint8_t value,
           std::atomic<int>& callbacks) {
    const bp_allocator_ops& memory = *t.target().allocator;
    const bp_stream_ops& ops = *t.target().streams;
    const bp_event_ops& event_ops = *t.target().events;
    streams.push_back(make_stream(t));
    bp_stream* const stream = streams.back().get();
    OwnedBuffer buffer = make_buffer(t, kSize);
    const bp_buffer_ref own = range(buffer, 0, kSize);
    if (events.empty()) {
      gate.hold(stream);
    } else {
      t.require_ok(ops.wait_event(ops.self, stream, events.back().get()), "wait_event");
    }
    events.push_back(make_event(t));
    t.require_ok(memory.fill(memory.self, stream, &own, &value, 1), "fill");
    t.require_ok(memory.copy(memory.self, stream, &to, &own), "copy");
    t.require_ok(ops.add_callback(ops.self, stream, count_callback, &callbacks), "add_callback");
    t.require_ok(event_ops.record(event_ops.self, events.back().get(), stream), "record");
    t.require_ok(memory.deallocate(memory.self, buffer.release(), stream), "deallocate");
  }

  // Destroys all streams and events in a drawn order.
  void end(std::mt19937_64& random) {
    std::vector<size_t> order(2 * streams.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::shuffle(order, random);
    for (const size_t which : order) {
      if (which % 2 == 0) {
        streams[which / 2].reset();
      } else {
        events[which / 2].reset();
      }
    }
  }
};

// Busy handles end in a drawn order, and their submitted work still completes.
void busy_handles_end_in_any_order(Context& t) {
  constexpr int kRounds = 12, kLength = Chain::kLength;
  std::atomic<int> callbacks = 0;
  const OwnedBuffer result = make_buffer(t, Chain::kLength * kSize);
  std::mt19937_64 random(t.seed());
  const auto value = [](int round, uint64_t i) {
    return static_cast<uint8_t>(5 * static_cast<uint64_t>(round) + i);
  };
  for (int round = 0; round < kRounds; ++round) {
    Gate gate(t);
    Chain chain;
    for (uint64_t i = 0; i < Chain::kLength; ++i) {
      chain.add(t, gate, range(result, i * kSize, kSize), value(round, i), callbacks);
    }
    chain.end(random);
    t.expect_eq(callbacks.load(), round * kLength, "callbacks before the gate opens");
    gate.open();
    for (int i = 0; i < 10000 && callbacks < (round + 1) * kLength; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    t.require(callbacks == (round + 1) * kLength, "each callback ran once");
    const OwnedStream reader = make_stream(t);
    for (uint64_t i = 0; i < Chain::kLength; ++i) {
      const std::vector<uint8_t> want(kSize, value(round, i));
      t.expect(read(t, reader.get(), range(result, i * kSize, kSize)) == want,
               "the bytes written by a stream that was destroyed while it was busy");
    }
  }
}

}  // namespace

void add_thread_handle_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "thread",
      {
          {"handles_come_and_go", {"STREAM-11", "STREAM-15", "EVENT-3"}, handles_come_and_go},
          {"handles_outlive_their_thread", {"STREAM-3"}, handles_outlive_their_thread},
          {"busy_handles_end_in_any_order",
           {"STREAM-11", "EVENT-3"},
           busy_handles_end_in_any_order},
      });
}

}  // namespace bp::conformance
