#include <atomic>
#include <chrono>
#include <thread>

#include "backends/sim/sim_test.hpp"

namespace bp::sim {
namespace {

// Every possible pause happens, before and after each piece of work.
const Sim::Options kAlwaysLate{{"delay_us", "300"}, {"delay_probability", "1"}};

TEST(SimStreams, KeepTheirOrderUnderDelays) {
  for (const char* seed : {"1", "2", "0x3"}) {
    Sim::Options options = kAlwaysLate;
    options["seed"] = seed;
    Sim s(options);
    bp_stream* stream = s.make_stream();
    bp_buffer* a = s.make_buffer(16);
    bp_buffer* b = s.make_buffer(16);
    for (uint8_t value = 1; value < 30; ++value) {
      ASSERT_EQ(s.fill(stream, a, value), BP_OK);
      ASSERT_EQ(s.copy(stream, b, a), BP_OK);
    }
    EXPECT_EQ(s.read(stream, b), bytes_of(29));
  }
}

TEST(SimStreams, RelateThroughEventsUnderDelays) {
  Sim s(kAlwaysLate);
  bp_stream* streams[] = {s.make_stream(), s.make_stream(), s.make_stream()};
  bp_buffer* buffer = s.make_buffer(16);
  uint8_t value = 0;
  for (int turn = 0; turn < 10; ++turn) {
    for (int k = 0; k < 3; ++k) {
      ASSERT_EQ(s.fill(streams[k], buffer, ++value), BP_OK);
      bp_event* event = s.make_event();
      ASSERT_EQ(s.record(event, streams[k]), BP_OK);
      ASSERT_EQ(s.wait(streams[(k + 1) % 3], event), BP_OK);
      ASSERT_EQ(s.b.events->destroy(s.b.events->self, event), BP_OK);
    }
  }
  EXPECT_EQ(s.read(streams[0], buffer), bytes_of(value));
}

TEST(SimStreams, DefaultStreamIsNotInline) {
  Sim s{{"delay_us", "0"}};
  struct Seen {
    std::atomic<bool> is_here = true;
    std::thread::id caller = std::this_thread::get_id();
  } seen;
  bp_stream* stream = s.b.default_stream();
  ASSERT_EQ(s.b.streams->add_callback(
                s.b.streams->self, stream,
                [](void* data, bp_status) {
                  auto* const it = static_cast<Seen*>(data);
                  it->is_here = std::this_thread::get_id() == it->caller;
                },
                &seen),
            BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_FALSE(seen.is_here);
}

TEST(SimStreams, RunSideBySide) {
  Sim s;
  bp_stream* held = s.make_stream();
  struct Block {
    std::atomic<bool> has_begun = false, may_end = false;
  } block;
  // A long callback blocks only its own stream.
  ASSERT_EQ(s.b.streams->add_callback(
                s.b.streams->self, held,
                [](void* data, bp_status) {
                  auto* const it = static_cast<Block*>(data);
                  it->has_begun = true;
                  while (!it->may_end) std::this_thread::yield();
                },
                &block),
            BP_OK);
  while (!block.has_begun) std::this_thread::yield();
  bp_stream* free_stream = s.make_stream();
  bp_buffer* buffer = s.make_buffer(16);
  ASSERT_EQ(s.fill(free_stream, buffer, 3), BP_OK);
  EXPECT_EQ(s.read(free_stream, buffer), bytes_of(3));
  block.may_end = true;
  EXPECT_EQ(s.synchronize(held), BP_OK);
}

// One thread runs all work. A wait that blocked this thread would never end.
TEST(SimStreams, ThatShareAQueueNeverWaitForThemselves) {
  Sim s{{"queues", "shared"}, {"delay_us", "100"}, {"delay_probability", "0.5"}};
  bp_stream* first = s.make_stream();
  bp_stream* second = s.make_stream(1);
  bp_buffer* buffer = s.make_buffer(16);
  bp_event* host = s.make_event(BP_EVENT_HOST_SIGNAL);
  bp_event* done = s.make_event();
  // The wait is submitted before the work that completes it.
  ASSERT_EQ(s.wait(second, host), BP_OK);
  ASSERT_EQ(s.fill(first, buffer, 1), BP_OK);
  ASSERT_EQ(s.record(done, first), BP_OK);
  ASSERT_EQ(s.wait(second, done), BP_OK);
  ASSERT_EQ(s.fill(first, buffer, 2), BP_OK);
  EXPECT_EQ(s.read(first, buffer), bytes_of(2));
  EXPECT_EQ(s.synchronize(second, 0), BP_TIMEOUT);
  ASSERT_EQ(s.signal(host), BP_OK);
  EXPECT_EQ(s.synchronize(second), BP_OK);
}

TEST(SimStreams, MeasureTimeOnTheClockOfTheDevice) {
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_event* start = s.make_event(BP_EVENT_TIMING);
  bp_event* end = s.make_event(BP_EVENT_TIMING);
  ASSERT_EQ(s.record(start, stream), BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(s.record(end, stream), BP_OK);
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  int64_t elapsed_ns = 0;
  ASSERT_EQ(s.b.events->elapsed_ns(s.b.events->self, start, end, &elapsed_ns), BP_OK);
  EXPECT_GE(elapsed_ns, 5'000'000);
  ASSERT_EQ(s.b.events->elapsed_ns(s.b.events->self, end, start, &elapsed_ns), BP_OK);
  EXPECT_LE(elapsed_ns, -5'000'000);
}

TEST(SimStreams, AbortWhatWaitsAtShutdown) {
  std::atomic<bp_status> status = BP_OK;
  Sim s;
  bp_stream* stream = s.make_stream(1);
  ASSERT_EQ(s.wait(stream, s.make_event(BP_EVENT_HOST_SIGNAL)), BP_OK);
  ASSERT_EQ(
      s.b.streams->add_callback(
          s.b.streams->self, stream,
          [](void* data, bp_status what) { *static_cast<std::atomic<bp_status>*>(data) = what; },
          &status),
      BP_OK);
  s.b.shutdown();
  EXPECT_EQ(status, BP_ABORTED);
}

TEST(SimStreams, LetAShutdownRunOutOfTimeWhileACallbackRuns) {
  struct Gate {
    std::atomic<bool> has_begun = false, may_end = false;
    static void wait(void* self, bp_status) {
      auto& gate = *static_cast<Gate*>(self);
      gate.has_begun = true;
      while (!gate.may_end) std::this_thread::yield();
    }
  } gate;
  Sim s;
  bp_stream* stream = s.make_stream();
  bp_buffer* buffer = s.make_buffer(16);
  ASSERT_EQ(s.b.streams->add_callback(s.b.streams->self, stream, Gate::wait, &gate), BP_OK);
  while (!gate.has_begun) std::this_thread::yield();
  for (const uint64_t timeout_ns : {0u, 1'000'000u}) {
    EXPECT_EQ(s.b.backend->shutdown(s.b.backend->self, timeout_ns), BP_TIMEOUT);
    EXPECT_EQ(s.b.text,
              "shutdown: the work did not end within " + std::to_string(timeout_ns) + " ns");
  }
  gate.may_end = true;
  EXPECT_EQ(s.fill(stream, buffer, 5), BP_OK) << "the instance is as it was";
  EXPECT_EQ(s.read(stream, buffer), bytes_of(5));
}

TEST(SimStreams, TakeWorkFromManyThreads) {
  constexpr int kThreads = 4, kPerThread = 300;
  Sim s;
  bp_stream* stream = s.make_stream();
  std::atomic<int> count = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      bp_stream* own = s.make_stream();
      bp_buffer* buffer = s.make_buffer(64);
      for (int i = 0; i < kPerThread; ++i) {
        ASSERT_EQ(s.fill(own, buffer, static_cast<uint8_t>(i)), BP_OK);
        ASSERT_EQ(
            s.b.streams->add_callback(
                s.b.streams->self, stream,
                [](void* data, bp_status) { ++*static_cast<std::atomic<int>*>(data); }, &count),
            BP_OK);
      }
      EXPECT_EQ(s.read(own, buffer), bytes_of(static_cast<uint8_t>(kPerThread - 1)));
      EXPECT_EQ(s.free(buffer, own), BP_OK);
      EXPECT_EQ(s.b.streams->destroy(s.b.streams->self, own), BP_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(s.synchronize(stream), BP_OK);
  EXPECT_EQ(count, kThreads * kPerThread);
}

}  // namespace
}  // namespace bp::sim
