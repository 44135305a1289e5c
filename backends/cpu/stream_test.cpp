#include <atomic>
#include <chrono>
#include <thread>

#include "backends/shell/test_backend.hpp"

namespace bp {
namespace {

constexpr uint64_t kForever = UINT64_MAX;

class Streams : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { stream = GetParam() ? b.default_stream() : b.make_stream(); }

  bp_status synchronize(bp_stream* s) {
    return b.streams->synchronize(b.streams->self, s, kForever);
  }
  bp_status wait(bp_stream* s, bp_event* e) { return b.streams->wait_event(b.streams->self, s, e); }
  bp_status signal(bp_event* e, bp_status status = BP_OK) {
    return b.events->signal(b.events->self, e, status);
  }
  bp_status record(bp_event* e, bp_stream* s) { return b.events->record(b.events->self, e, s); }
  uint32_t is_done(bp_stream* s) {
    uint32_t done = 2;
    EXPECT_EQ(b.streams->query(b.streams->self, s, &done), BP_OK);
    return done;
  }
  uint32_t is_done(bp_event* e) {
    uint32_t done = 2;
    EXPECT_EQ(b.events->query(b.events->self, e, &done), BP_OK);
    return done;
  }
  bp_status fill(bp_stream* s, bp_buffer* buffer, uint8_t value) {
    const bp_buffer_ref range{buffer, 0, 16};
    return b.allocator->fill(b.allocator->self, s, &range, &value, 1);
  }
  uint8_t first_byte(bp_buffer* buffer) {
    uint64_t address = 0;
    b.allocator->address(b.allocator->self, buffer, &address);
    return *reinterpret_cast<volatile uint8_t*>(address);
  }
  void free(bp_buffer* buffer) { b.allocator->deallocate(b.allocator->self, buffer, nullptr); }

  TestBackend b{BACKEND_PATH};
  bp_stream* stream = nullptr;
};

struct Call {
  std::atomic<int> count = 0;
  std::atomic<bp_status> status = -1;
  static void run(void* self, bp_status status) {
    static_cast<Call*>(self)->status = status;
    ++static_cast<Call*>(self)->count;
  }
};

INSTANTIATE_TEST_SUITE_P(, Streams, testing::Bool(),
                         [](const auto& test) { return test.param ? "Default" : "Created"; });

TEST_P(Streams, HoldWorkBackUntilTheHostSignals) {
  bp_buffer* buffer = b.make_buffer(16);
  ASSERT_EQ(fill(stream, buffer, 1), BP_OK);
  ASSERT_EQ(synchronize(stream), BP_OK);
  bp_event* gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  ASSERT_EQ(wait(stream, gate), BP_OK);
  ASSERT_EQ(fill(stream, buffer, 2), BP_OK);
  EXPECT_EQ(b.streams->synchronize(b.streams->self, stream, 1'000'000), BP_TIMEOUT);
  EXPECT_EQ(b.streams->synchronize(b.streams->self, stream, 0), BP_TIMEOUT);
  EXPECT_EQ(is_done(stream), 0u);
  EXPECT_EQ(first_byte(buffer), 1);
  ASSERT_EQ(signal(gate), BP_OK);
  ASSERT_EQ(synchronize(stream), BP_OK);
  EXPECT_EQ(is_done(stream), 1u);
  EXPECT_EQ(first_byte(buffer), 2);
  EXPECT_EQ(signal(gate), BP_INVALID_ARGUMENT);
  free(buffer);
}

TEST_P(Streams, LetOthersRunWhileTheyWait) {
  bp_event* gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  ASSERT_EQ(wait(stream, gate), BP_OK);
  bp_stream* const other = b.make_stream();
  bp_buffer* buffer = b.make_buffer(16);
  ASSERT_EQ(fill(other, buffer, 7), BP_OK);
  ASSERT_EQ(synchronize(other), BP_OK);
  EXPECT_EQ(first_byte(buffer), 7);
  ASSERT_EQ(signal(gate), BP_OK);
  free(buffer);
}

TEST_P(Streams, CarryAFailureThroughEventsUntilItIsCleared) {
  bp_event* gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  bp_event* after = b.make_event();
  bp_stream* const other = b.make_stream();
  bp_buffer* buffer = b.make_buffer(16);
  ASSERT_EQ(fill(stream, buffer, 1), BP_OK);
  ASSERT_EQ(wait(stream, gate), BP_OK);
  ASSERT_EQ(fill(stream, buffer, 2), BP_OK);
  ASSERT_EQ(record(after, stream), BP_OK);
  ASSERT_EQ(wait(other, after), BP_OK);
  ASSERT_EQ(signal(gate, BP_ABORTED), BP_OK);
  EXPECT_EQ(synchronize(stream), BP_ABORTED);
  EXPECT_EQ(synchronize(stream), BP_ABORTED);
  EXPECT_EQ(b.streams->status(b.streams->self, stream), BP_ABORTED);
  EXPECT_EQ(first_byte(buffer), 1) << "work behind the failure ran";
  EXPECT_EQ(fill(stream, buffer, 3), BP_STREAM_FAILED);
  EXPECT_EQ(synchronize(other), BP_ABORTED);
  EXPECT_EQ(b.events->synchronize(b.events->self, after, kForever), BP_ABORTED);
  ASSERT_EQ(b.streams->clear_failure(b.streams->self, stream), BP_OK);
  EXPECT_EQ(b.streams->status(b.streams->self, stream), BP_OK);
  EXPECT_EQ(fill(stream, buffer, 4), BP_OK);
  EXPECT_EQ(synchronize(stream), BP_OK);
  EXPECT_EQ(first_byte(buffer), 4);
  EXPECT_EQ(b.events->synchronize(b.events->self, after, kForever), BP_ABORTED);
  EXPECT_EQ(synchronize(other), BP_ABORTED);
  free(buffer);
}

TEST_P(Streams, CallBackOnceAlsoAfterAFailureAndAfterDestroy) {
  Call ok, failed, destroyed;
  ASSERT_EQ(b.streams->add_callback(b.streams->self, stream, Call::run, &ok), BP_OK);
  ASSERT_EQ(synchronize(stream), BP_OK);
  EXPECT_EQ(ok.count, 1);
  EXPECT_EQ(ok.status, BP_OK);

  bp_event* broken = b.make_event(BP_EVENT_HOST_SIGNAL);
  ASSERT_EQ(signal(broken, BP_DEVICE_LOST), BP_OK);
  ASSERT_EQ(wait(stream, broken), BP_OK);
  ASSERT_EQ(b.streams->add_callback(b.streams->self, stream, Call::run, &failed), BP_OK);
  EXPECT_EQ(synchronize(stream), BP_DEVICE_LOST);
  EXPECT_EQ(failed.count, 1);
  EXPECT_EQ(failed.status, BP_DEVICE_LOST);

  bp_event* gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  bp_stream* const other = b.make_stream();
  ASSERT_EQ(wait(other, gate), BP_OK);
  ASSERT_EQ(b.streams->add_callback(b.streams->self, other, Call::run, &destroyed), BP_OK);
  ASSERT_EQ(b.streams->destroy(b.streams->self, other), BP_OK);
  ASSERT_EQ(b.events->destroy(b.events->self, gate), BP_OK) << "the waiter lost its event";
  EXPECT_EQ(destroyed.count, 0);
  b.shutdown();
  EXPECT_EQ(destroyed.count, 1);
  EXPECT_EQ(destroyed.status, BP_ABORTED);
}

TEST_P(Streams, WaitForWhatAnEventCapturedNotForWhatItCapturesLater) {
  bp_event* first_gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  bp_event* second_gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  bp_event* event = b.make_event();
  bp_stream* const other = b.make_stream();
  EXPECT_EQ(is_done(event), 1u);
  ASSERT_EQ(wait(other, first_gate), BP_OK);
  ASSERT_EQ(record(event, other), BP_OK);
  ASSERT_EQ(wait(stream, event), BP_OK);
  ASSERT_EQ(wait(other, second_gate), BP_OK);
  ASSERT_EQ(record(event, other), BP_OK);
  EXPECT_EQ(is_done(event), 0u);
  ASSERT_EQ(signal(first_gate), BP_OK);
  EXPECT_EQ(synchronize(stream), BP_OK);
  EXPECT_EQ(is_done(event), 0u);
  ASSERT_EQ(signal(second_gate), BP_OK);
  EXPECT_EQ(b.events->synchronize(b.events->self, event, kForever), BP_OK);
}

TEST_P(Streams, MeasureTime) {
  bp_event* start = b.make_event(BP_EVENT_TIMING);
  bp_event* end = b.make_event(BP_EVENT_TIMING);
  bp_event* untimed = b.make_event();
  int64_t ns = -1;
  EXPECT_EQ(b.events->elapsed_ns(b.events->self, start, end, &ns), BP_INVALID_ARGUMENT);
  for (bp_event* e : {start, end, untimed}) ASSERT_EQ(record(e, stream), BP_OK);
  ASSERT_EQ(synchronize(stream), BP_OK);
  EXPECT_EQ(b.events->elapsed_ns(b.events->self, start, untimed, &ns), BP_INVALID_ARGUMENT);
  EXPECT_EQ(ns, -1);
  EXPECT_EQ(b.events->elapsed_ns(b.events->self, start, end, &ns), BP_OK);
  EXPECT_GE(ns, 0);
}

TEST_P(Streams, KeepOrderUnderRacingSubmissions) {
  constexpr int kThreads = 4, kPerThread = 500;
  Call calls;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kPerThread; ++i) {
        ASSERT_EQ(b.streams->add_callback(b.streams->self, stream, Call::run, &calls), BP_OK);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(synchronize(stream), BP_OK);
  EXPECT_EQ(calls.count, kThreads * kPerThread);
  EXPECT_EQ(is_done(stream), 1u);
  EXPECT_EQ(b.devices->synchronize(b.devices->self, b.device, 0), BP_OK);
}

TEST_P(Streams, RefuseWhatTheyDoNotKnow) {
  const bp_stream_desc desc{
      .struct_size = sizeof(desc), .struct_type = BP_STRUCT_STREAM_DESC, .flags = 1u << 31};
  bp_stream* made = nullptr;
  EXPECT_EQ(b.streams->create(b.streams->self, b.device, &desc, &made), BP_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(b.streams->create(b.streams->self, nullptr, nullptr, &made), BP_INVALID_ARGUMENT);
  EXPECT_EQ(b.streams->create(b.streams->self, b.device, nullptr, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(b.streams->query(b.streams->self, stream, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(b.streams->destroy(b.streams->self, nullptr), BP_OK);
  EXPECT_EQ(b.streams->destroy(b.streams->self, b.default_stream()), BP_INVALID_ARGUMENT);
  bp_event* gate = b.make_event(BP_EVENT_HOST_SIGNAL);
  EXPECT_EQ(record(gate, stream), BP_INVALID_ARGUMENT);
  EXPECT_EQ(wait(stream, reinterpret_cast<bp_event*>(stream)), BP_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace bp
