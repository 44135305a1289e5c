// Cases with several threads at once, on one handle and on handles of their own.
#include <atomic>
#include <chrono>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/thread_fixtures.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kSize = 4096;

// Racing submissions are ordered somehow: each thread owns a part of the buffer, and the order of
// its own submissions must hold.
void submissions_to_one_stream_race(Context& t) {
  constexpr int kRounds = 100;
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_stream_ops& streams = *t.target().streams;
  std::atomic<int> callbacks = 0;  // The counter outlives the stream, and so its callbacks.
  const OwnedBuffer buffer = make_buffer(t, kThreads * kSize),
                    mirror = make_buffer(t, kThreads * kSize);
  const OwnedStream stream = make_stream(t);
  ThreadReport report;
  on_threads([&](int thread) {
    const auto offset = static_cast<uint64_t>(thread) * kSize;
    const bp_buffer_ref mine = range(buffer, offset, kSize), copied = range(mirror, offset, kSize);
    for (int round = 1; round <= kRounds; ++round) {
      const auto value = static_cast<uint8_t>(thread * 17 + round);
      const bool is_ok =
          report.ok(memory.fill(memory.self, stream.get(), &mine, &value, 1), "fill") &&
          report.ok(memory.copy(memory.self, stream.get(), &copied, &mine), "copy") &&
          report.ok(streams.add_callback(streams.self, stream.get(), count_callback, &callbacks),
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
             "the bytes after the last copy of a thread");
  }
}

// All threads query handles that no thread changes.
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
  ThreadReport report;
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
          report.ok(memory.copy_to_host(memory.self, own, seen.data(), &whole,
                                        BP_BORROW_DURING_CALL, UINT64_MAX),
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
      if (stream_done != 1 || event_done != 1)
        report.add("query() reports 0 for work that has ended");
    }
  });
  report.tell(t);
}

// Each thread causes another failure, and must find the text of its own failure.
void each_thread_has_its_own_error_text(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_device_ops& devices = *t.target().devices;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 64);
  ThreadReport report;
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

// A callback that has not returned yet must not keep other threads from calling the backend.
void callback_holds_no_lock(Context& t) {
  const bp_target& target = t.target();
  const bp_stream_ops& streams = *target.streams;
  const OwnedStream stream = make_stream(t);
  const OwnedStream other = make_stream(t);
  struct Meeting {
    std::atomic<bool> is_inside = false, may_leave = false, is_submitted = false;
  } meeting;
  ThreadReport report;
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
    meeting.is_submitted = true;  // If work runs inline, the callback comes before this line.
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
           "the bytes of work submitted while the callback runs");
}

// Uses the other devices of the backend, each on a thread of its own.
void devices_work_side_by_side(Context& t) {
  std::vector<const bp_target*> targets;
  for (uint64_t i = 0; i < bp_registry_target_count(t.registry()); ++i) {
    const bp_target* const target = bp_registry_target(t.registry(), i);
    if (target->plugin == t.target().plugin) targets.push_back(target);
  }
  if (targets.size() < 2) t.not_supported("the backend has one device");
  ThreadReport report;
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
          !report.ok(memory.copy_to_host(memory.self, stream, bytes.data(), &whole,
                                         BP_BORROW_DURING_CALL, UINT64_MAX),
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
          {"one_handle_is_read_by_all", {"STREAM-10", "EVENT-10"}, one_handle_is_read_by_all},
          {"each_thread_has_its_own_error_text", {"ERROR-1"}, each_thread_has_its_own_error_text},
          {"callback_holds_no_lock", {"STREAM-10", "STREAM-16"}, callback_holds_no_lock},
          {"devices_work_side_by_side", {"STREAM-3"}, devices_work_side_by_side},
      });
}

}  // namespace bp::conformance
