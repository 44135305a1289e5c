// Several threads at once: on one handle, on handles of their own, and while handles come and go.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures.hpp"
#include "conformance/cases/runtime_families.hpp"

namespace bp::conformance {
namespace {

constexpr int kThreads = 6;
constexpr uint64_t kSize = 4096;

// What a thread has to say: the first thing that went wrong there, for the thread of the case.
class Report {
 public:
  void add(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    if (first_.empty()) first_ = problem;
  }
  // False, and the sentence is kept, unless `status` is BP_OK.
  bool ok(bp_status status, const char* what) {
    if (status == BP_OK) return true;
    add(std::string(what) + ": " + bp_status_name(status) + ": " + bp_error_text());
    bp_error_clear();
    return false;
  }
  void tell(Context& t) {
    if (!first_.empty()) t.fail(first_);
  }

 private:
  std::mutex mutex_;
  std::string first_;  // Guarded by mutex_.
};

// Runs `body(thread number)` on all threads at once.
template <typename Body>
void on_threads(Body body) {
  std::atomic<int> waiting = kThreads;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void count(void* data, bp_status) { ++*static_cast<std::atomic<int>*>(data); }

// Racing submissions are ordered somehow: each thread owns a part of the buffer, and its own order
// is kept.
void submissions_to_one_stream_race(Context& t) {
  constexpr int kRounds = 100;
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_stream_ops& streams = *t.target().streams;
  std::atomic<int> callbacks = 0;  // Outlives the stream, and with it the callbacks.
  const OwnedBuffer buffer = make_buffer(t, kThreads * kSize),
                    mirror = make_buffer(t, kThreads * kSize);
  const OwnedStream stream = make_stream(t);
  Report report;
  on_threads([&](int thread) {
    const auto offset = static_cast<uint64_t>(thread) * kSize;
    const bp_buffer_ref mine = range(buffer, offset, kSize), copied = range(mirror, offset, kSize);
    for (int round = 1; round <= kRounds; ++round) {
      const auto value = static_cast<uint8_t>(thread * 17 + round);
      const bool is_ok =
          report.ok(memory.fill(memory.self, stream.get(), &mine, &value, 1), "fill") &&
          report.ok(memory.copy(memory.self, stream.get(), &copied, &mine), "copy") &&
          report.ok(streams.add_callback(streams.self, stream.get(), count, &callbacks),
                    "add_callback");
      if (!is_ok) return;
    }
  });
  report.tell(t);
  finish(t, stream.get());
  t.expect_eq(callbacks.load(), kThreads * kRounds, "callbacks that ran");
  for (int thread = 0; thread < kThreads; ++thread) {
    const auto offset = static_cast<uint64_t>(thread) * kSize;
    const std::vector<uint8_t> last(kSize, static_cast<uint8_t>(thread * 17 + kRounds));
    t.expect(read(t, stream.get(), range(mirror, offset, kSize)) == last,
             "what the last copy of a thread left");
  }
}

// What one thread of handles_come_and_go makes and ends in a round.
struct Turn {
  const bp_target& target;
  Report& report;
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

  // Writes on one stream, reads on the other, and ends each handle as soon as it may.
  bool use_and_end(std::vector<uint8_t>& bytes, uint8_t value, std::atomic<int>& callbacks) {
    const bp_stream_ops& streams = *target.streams;
    const bp_event_ops& events = *target.events;
    const bp_allocator_ops& memory = *target.allocator;
    const bp_buffer_ref whole{buffer, 0, bytes.size()};
    return report.ok(memory.fill(memory.self, writer, &whole, &value, 1), "fill") &&
           report.ok(events.record(events.self, event, writer), "record") &&
           report.ok(streams.add_callback(streams.self, writer, count, &callbacks), "callback") &&
           report.ok(streams.wait_event(streams.self, reader, event), "wait_event") &&
           report.ok(events.destroy(events.self, event), "event.destroy") &&
           report.ok(streams.destroy(streams.self, writer), "stream.destroy") &&
           report.ok(memory.copy_to_host(memory.self, reader, bytes.data(), &whole,
                                         BP_BORROW_DURING_CALL),
                     "copy_to_host") &&
           report.ok(memory.free(memory.self, buffer, reader), "free") &&
           report.ok(streams.destroy(streams.self, reader), "stream.destroy");
  }
};

// Streams, events and buffers of threads that make and end them while others do the same.
void handles_come_and_go(Context& t) {
  constexpr int kRounds = 40;
  std::atomic<int> callbacks = 0;
  Report report;
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

// Handles that nobody changes, asked by all.
void one_handle_is_read_by_all(Context& t) {
  const bp_target& target = t.target();
  const bp_allocator_ops& memory = *target.allocator;
  const bp_stream_ops& streams = *target.streams;
  const bp_event_ops& events = *target.events;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const std::vector<uint8_t> bytes = random_bytes(t, kSize);
  write(t, stream.get(), range(buffer, 0, kSize), bytes);
  t.require_ok(events.record(events.self, event.get(), stream.get()), "record");
  finish(t, stream.get());
  Report report;
  on_threads([&](int) {
    bp_stream* own = nullptr;
    if (!report.ok(streams.create(streams.self, target.device, nullptr, &own), "create")) return;
    const OwnedStream end(own, {&streams});
    const bp_buffer_ref whole = range(buffer, 0, kSize);
    std::vector<uint8_t> seen(kSize);
    for (int round = 0; round < 50; ++round) {
      uint32_t stream_done = 0, event_done = 0;
      uint64_t free_bytes = 0, total_bytes = 0;
      const bp_device_properties* properties = nullptr;
      const bool is_ok =
          report.ok(streams.wait_event(streams.self, own, event.get()), "wait_event") &&
          report.ok(
              memory.copy_to_host(memory.self, own, seen.data(), &whole, BP_BORROW_DURING_CALL),
              "copy_to_host") &&
          report.ok(streams.query(streams.self, stream.get(), &stream_done), "query") &&
          report.ok(streams.status(streams.self, stream.get()), "status") &&
          report.ok(events.query(events.self, event.get(), &event_done), "event.query") &&
          report.ok(target.devices->properties(target.devices->self, target.device, &properties),
                    "properties") &&
          report.ok(target.devices->memory_info(target.devices->self, target.device, 0, &free_bytes,
                                                &total_bytes),
                    "memory_info");
      if (!is_ok) return;
      if (seen != bytes) report.add("a thread read other bytes");
      if (stream_done != 1 || event_done != 1) report.add("what has ended is not done");
    }
  });
  report.tell(t);
}

// Each thread fails in a way of its own and finds the text of its own failure.
void each_thread_has_its_own_error_text(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_device_ops& devices = *t.target().devices;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 64);
  Report report;
  std::string expected[2];
  const auto fail = [&](int kind) {
    const bp_buffer_ref outside = range(buffer, 32, 64);
    const uint8_t zero = 0;
    const bp_status status = kind == 0 ? memory.fill(memory.self, stream.get(), &outside, &zero, 1)
                                       : devices.probe(devices.self, nullptr);
    return status == BP_OK ? std::string("(no failure)") : std::string(bp_error_text());
  };
  for (int kind = 0; kind < 2; ++kind) {
    expected[kind] = fail(kind);
    bp_error_clear();
  }
  t.require(!expected[0].empty() && !expected[1].empty(), "both failures have a text");
  t.require(expected[0] != expected[1], "the texts of the two failures differ");
  on_threads([&](int thread) {
    for (int round = 0; round < 200; ++round) {
      if (fail(thread % 2) != expected[thread % 2]) report.add("the text of another thread");
    }
  });
  report.tell(t);
  t.expect_eq(std::string(bp_error_text()), std::string(), "the text of the thread that slept");
}

// A callback that does not return yet keeps nobody from calling the backend.
void callback_holds_no_lock(Context& t) {
  const bp_target& target = t.target();
  const bp_stream_ops& streams = *target.streams;
  const OwnedStream stream = make_stream(t);
  const OwnedStream other = make_stream(t);
  struct Meeting {
    std::atomic<bool> is_inside = false, may_leave = false, is_submitted = false;
  } meeting;
  Report report;
  std::thread caller([&] {
    report.ok(streams.add_callback(
                  streams.self, stream.get(),
                  [](void* data, bp_status) {
                    auto& m = *static_cast<Meeting*>(data);
                    m.is_inside = true;
                    for (int i = 0; i < 10000 && !m.may_leave; ++i) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    }
                  },
                  &meeting),
              "add_callback");
    meeting.is_submitted = true;  // Later than the callback itself where work runs inline.
    report.ok(streams.flush(streams.self, stream.get()), "flush");
  });
  while (!meeting.is_inside) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const OwnedStream made = make_stream(t);
  const bp_buffer_ref whole = range(buffer, 0, kSize);
  const uint8_t value = 9;
  uint32_t done = 1;
  const bool is_submitted = meeting.is_submitted;
  report.ok(streams.status(streams.self, stream.get()), "status");
  report.ok(streams.query(streams.self, stream.get(), &done), "query");
  report.ok(target.allocator->fill(target.allocator->self, stream.get(), &whole, &value, 1),
            "fill behind the callback");
  const OwnedEvent event = make_event(t);
  report.ok(target.events->record(target.events->self, event.get(), stream.get()), "record");
  const bool is_inside_still =
      !meeting.may_leave && std::chrono::steady_clock::now() - begin < std::chrono::seconds(9);
  meeting.may_leave = true;
  caller.join();
  report.tell(t);
  t.expect(is_inside_still, "the calls returned while the callback was inside");
  if (is_submitted) t.expect_eq(done, 0u, "query of a stream whose callback has not returned");
  finish(t, stream.get());
  t.expect(read(t, other.get(), whole) == std::vector<uint8_t>(kSize, value),
           "what was submitted meanwhile");
}

// Handles outlive the thread that made them.
void handles_outlive_their_thread(Context& t) {
  const bp_target& target = t.target();
  const bp_allocator_ops& memory = *target.allocator;
  bp_stream* stream = nullptr;
  bp_buffer* buffer = nullptr;
  Report report;
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

// A chain of streams that all wait for a gate, each with a buffer that it frees.
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
    t.require_ok(ops.add_callback(ops.self, stream, count, &callbacks), "add_callback");
    t.require_ok(event_ops.record(event_ops.self, events.back().get(), stream), "record");
    t.require_ok(memory.free(memory.self, buffer.release(), stream), "free");
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

// All that is busy ends in a drawn order, and what it was given still comes true.
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
               "what a stream wrote that was destroyed busy");
    }
  }
}

// Other devices of the backend, each used by a thread of its own.
void devices_work_side_by_side(Context& t) {
  std::vector<const bp_target*> targets;
  for (uint64_t i = 0; i < bp_registry_target_count(t.registry()); ++i) {
    const bp_target* const target = bp_registry_target(t.registry(), i);
    if (target->plugin == t.target().plugin) targets.push_back(target);
  }
  if (targets.size() < 2) t.not_supported("the backend has one device");
  Report report;
  on_threads([&](int thread) {
    const bp_target& target = *targets[static_cast<size_t>(thread) % targets.size()];
    const bp_allocator_ops& memory = *target.allocator;
    const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = kSize};
    for (int round = 0; round < 20; ++round) {
      bp_stream* stream = nullptr;
      bp_buffer* buffer = nullptr;
      if (!report.ok(target.streams->create(target.streams->self, target.device, nullptr, &stream),
                     "create") ||
          !report.ok(memory.allocate(memory.self, target.device, &desc, &buffer), "allocate")) {
        return;
      }
      const OwnedStream stream_end(stream, {target.streams});
      const OwnedBuffer buffer_end(buffer, {target.allocator});
      const bp_buffer_ref whole{buffer, 0, kSize};
      const auto value = static_cast<uint8_t>(thread * 31 + round);
      std::vector<uint8_t> bytes(kSize);
      if (!report.ok(memory.fill(memory.self, stream, &whole, &value, 1), "fill") ||
          !report.ok(
              memory.copy_to_host(memory.self, stream, bytes.data(), &whole, BP_BORROW_DURING_CALL),
              "copy_to_host")) {
        return;
      }
      if (bytes != std::vector<uint8_t>(kSize, value)) report.add("bytes of another device");
    }
  });
  report.tell(t);
}

}  // namespace

void add_thread_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "thread",
      {
          {"submissions_to_one_stream_race",
           {"STREAM-3", "STREAM-15"},
           submissions_to_one_stream_race},
          {"handles_come_and_go", {"STREAM-11", "STREAM-15", "EVENT-3"}, handles_come_and_go},
          {"one_handle_is_read_by_all", {"STREAM-10", "EVENT-10"}, one_handle_is_read_by_all},
          {"each_thread_has_its_own_error_text", {"ERROR-1"}, each_thread_has_its_own_error_text},
          {"callback_holds_no_lock", {"STREAM-10", "STREAM-16"}, callback_holds_no_lock},
          {"handles_outlive_their_thread", {"STREAM-3"}, handles_outlive_their_thread},
          {"busy_handles_end_in_any_order",
           {"STREAM-11", "EVENT-3"},
           busy_handles_end_in_any_order},
          {"devices_work_side_by_side", {"STREAM-3"}, devices_work_side_by_side},
      });
}

}  // namespace bp::conformance
