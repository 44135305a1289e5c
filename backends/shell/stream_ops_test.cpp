// Tests the tables of streams and events with queues that have no device.
#include "backplane/shell/stream_ops.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <vector>

#include "backplane/shell/deadline.hpp"
#include "backplane/shell/queue_streams.hpp"
#include "backplane/shell/shared_event_front.hpp"

namespace bp {
namespace {

struct Card;

using Handle = DeviceHandle<Card>;

struct Stream : Handle {
  static constexpr uint32_t kMagic = 1;

  Stream(Card& its_device, std::shared_ptr<Queue> its_queue)
      : Handle(kMagic, its_device), queue(std::move(its_queue)) {}

  std::shared_ptr<Queue> queue;
};

const std::shared_ptr<Queue>& work_of(const Stream& stream) { return stream.queue; }

struct Event : Handle, EventOf<Point> {
  static constexpr uint32_t kMagic = 2;

  Event(Card& its_device, bp_event_flags its_flags)
      : Handle(kMagic, its_device), EventOf(its_flags, (its_flags & BP_EVENT_TIMING) != 0) {}
};

// A device whose streams run work on the caller's thread.
struct Card {
  explicit Card(const bp_host& its_host) : host(its_host) {}

  Stream* create_stream() {
    streams.push_back(
        std::make_unique<Stream>(*this, std::make_shared<Queue>(host, executor, true)));
    return streams.back().get();
  }
  Stream* default_stream() { return streams.empty() ? create_stream() : streams[0].get(); }
  bool is_default_stream(const Stream* stream) const { return stream == streams[0].get(); }
  void destroy_stream(Stream* stream) { stream->magic = 0; }
  void add(Event* event) { events.insert(event); }
  void remove(Event* event) { events.erase(event); }

  const bp_host& host;
  Executor executor;
  std::vector<std::unique_ptr<Stream>> streams;
  std::set<Event*> events;
};

struct Machine {
  const bp_host* host;
  Card* card;
};

struct Traits : QueueStreams<Machine, Card, Stream, Event> {
  static Card& device_of(const Machine& i, bp_device*, const char*) { return *i.card; }
};

struct TraitsWithMore : Traits {
  static Stream* wrap_native(Card&, void* native) { return static_cast<Stream*>(native); }
  static void* native_handle(Stream& stream) { return &stream; }
  static bool is_capturing(const Stream&) { return true; }
  static void check_event(const Card&, bp_event_flags flags) {
    if ((flags & BP_EVENT_TIMING) != 0) refuse(BP_UNSUPPORTED, "event.create: no clock");
  }
};

// Traits whose moments all have a time, or all have none.
template <bool kHasTime>
struct TraitsWithoutOneClock : Traits {
  static bool has_time(const Point&) { return kHasTime; }
  static bool has_one_clock(const Point&, const Point&) { return false; }
};

class StreamTables : public testing::Test {
 protected:
  StreamTables() {
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<StreamTables*>(self)->text = reason;
      return status;
    };
  }

  bp_stream* make_stream() {
    bp_stream* stream = nullptr;
    EXPECT_EQ(streams.create(&machine, nullptr, nullptr, &stream), BP_OK) << text;
    return stream;
  }
  bp_event* make_event(bp_event_flags flags = 0) {
    const bp_event_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = flags};
    bp_event* event = nullptr;
    EXPECT_EQ(events.create(&machine, nullptr, &desc, &event), BP_OK) << text;
    return event;
  }
  void destroy(const std::vector<bp_event*>& all) {
    for (bp_event* const event : all) EXPECT_EQ(events.destroy(&machine, event), BP_OK) << text;
  }

  bp_host host{};
  Card card{host};
  Machine machine{&host, &card};
  std::string text;
  const bp_stream_ops streams = StreamOps<Traits>::table();
  const bp_event_ops events = EventOps<Traits>::table();
  const bp_stream_ops more_streams = StreamOps<TraitsWithMore>::table();
  const bp_event_ops more_events = EventOps<TraitsWithMore>::table();
};

TEST_F(StreamTables, HaveTheOptionalSlotsOfTheirTraitsAlone) {
  EXPECT_TRUE(streams.wrap_native == nullptr && streams.native_handle == nullptr &&
              streams.is_capturing == nullptr);
  bp_stream* const stream = make_stream();
  void* native = nullptr;
  ASSERT_EQ(more_streams.native_handle(&machine, stream, &native), BP_OK);
  bp_stream* wrapped = nullptr;
  ASSERT_EQ(more_streams.wrap_native(&machine, nullptr, native, &wrapped), BP_OK);
  EXPECT_EQ(wrapped, stream);
  EXPECT_EQ(more_streams.wrap_native(&machine, nullptr, nullptr, &wrapped), BP_INVALID_ARGUMENT);
  EXPECT_EQ(wrapped, stream);
  uint32_t is_capturing = 0;
  ASSERT_EQ(more_streams.is_capturing(&machine, stream, &is_capturing), BP_OK);
  EXPECT_EQ(is_capturing, 1u);
}

TEST_F(StreamTables, RefuseWhatIsNoStreamOrEvent) {
  bp_event* const event = make_event();
  bp_stream* const foreign = reinterpret_cast<bp_stream*>(event);
  EXPECT_EQ(streams.status(&machine, foreign), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "stream.status: stream is NULL or not one of this backend");
  EXPECT_EQ(streams.wait_event(&machine, make_stream(), nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "stream.wait_event: event is NULL or not one of this backend");
  EXPECT_EQ(events.elapsed_ns(&machine, event, nullptr, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.elapsed_ns: end is NULL or not one of this backend");
  EXPECT_EQ(streams.destroy(&machine, nullptr), BP_OK);
  destroy({nullptr, event});
}

TEST_F(StreamTables, RefuseFlagsThatNobodyKnowsOrTheDeviceLacks) {
  bp_stream* stream = nullptr;
  const bp_stream_desc stream_desc{
      .struct_size = sizeof(stream_desc), .struct_type = BP_STRUCT_STREAM_DESC, .flags = 4};
  EXPECT_EQ(streams.create(&machine, nullptr, &stream_desc, &stream), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "stream.create: flags is 4; no flag is allowed");
  bp_event* event = nullptr;
  bp_event_desc desc{.struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = 8};
  EXPECT_EQ(events.create(&machine, nullptr, &desc, &event), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.create: flags is 8 and reserved is 0; allowed are bits 7, and 0");
  desc.flags = BP_EVENT_EXPORTABLE;
  EXPECT_EQ(events.create(&machine, nullptr, &desc, &event), BP_UNSUPPORTED);
  desc.flags = BP_EVENT_TIMING;
  EXPECT_EQ(more_events.create(&machine, nullptr, &desc, &event), BP_UNSUPPORTED);
  EXPECT_EQ(text, "event.create: no clock");
  EXPECT_EQ(event, nullptr);
}

TEST_F(StreamTables, LendTheDefaultStream) {
  bp_stream *lent = nullptr, *again = nullptr;
  ASSERT_EQ(streams.default_stream(&machine, nullptr, &lent), BP_OK);
  ASSERT_EQ(streams.default_stream(&machine, nullptr, &again), BP_OK);
  EXPECT_EQ(lent, again);
  EXPECT_EQ(streams.destroy(&machine, lent), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "stream.destroy: nobody can destroy the default stream");
  bp_stream* const other = make_stream();
  EXPECT_EQ(streams.destroy(&machine, other), BP_OK);
  EXPECT_EQ(streams.status(&machine, other), BP_INVALID_ARGUMENT) << "it has ended";
}

TEST_F(StreamTables, WaitForTheHostAndCarryItsFailure) {
  bp_stream* const stream = make_stream();
  bp_event* const gate = make_event(BP_EVENT_HOST_SIGNAL);
  bp_event* const after = make_event();
  bp_status seen = BP_OK;
  EXPECT_EQ(streams.wait_event(&machine, stream, after), BP_OK) << "it was never recorded";
  ASSERT_EQ(streams.wait_event(&machine, stream, gate), BP_OK);
  ASSERT_EQ(events.record(&machine, after, stream), BP_OK);
  const auto note = [](void* data, bp_status status) { *static_cast<bp_status*>(data) = status; };
  ASSERT_EQ(streams.add_callback(&machine, stream, note, &seen), BP_OK);
  uint32_t is_done = 1;
  ASSERT_EQ(streams.query(&machine, stream, &is_done), BP_OK);
  EXPECT_EQ(is_done, 0u);
  ASSERT_EQ(events.query(&machine, after, &is_done), BP_OK);
  EXPECT_EQ(is_done, 0u);
  EXPECT_EQ(streams.synchronize(&machine, stream, 1), BP_TIMEOUT);
  EXPECT_EQ(text, "stream.synchronize: the work did not end within 1 ns");
  EXPECT_EQ(events.synchronize(&machine, after, 1), BP_TIMEOUT);
  EXPECT_EQ(text, "event.synchronize: the work did not end within 1 ns");
  ASSERT_EQ(events.signal(&machine, gate, BP_ABORTED), BP_OK);
  EXPECT_EQ(events.synchronize(&machine, after, UINT64_MAX), BP_ABORTED);
  EXPECT_EQ(text, "the host signalled a failure");
  EXPECT_EQ(streams.synchronize(&machine, stream, UINT64_MAX), BP_ABORTED);
  EXPECT_EQ(seen, BP_ABORTED);
  bp_event* const never = make_event();
  for (bp_event* const event : {never, after}) {
    EXPECT_EQ(streams.wait_event(&machine, stream, event), BP_STREAM_FAILED);
    EXPECT_EQ(text, "the stream has failed: the host signalled a failure");
  }
  ASSERT_EQ(streams.clear_failure(&machine, stream), BP_OK);
  EXPECT_EQ(streams.status(&machine, stream), BP_OK);
  EXPECT_EQ(events.signal(&machine, gate, BP_OK), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.signal: the event is signalled already");
  EXPECT_EQ(events.signal(&machine, after, BP_OK), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.signal: the event is not host-signalled");
  EXPECT_EQ(events.record(&machine, gate, stream), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.record: only the host signals this event");
  destroy({gate, after, never});
  EXPECT_TRUE(card.events.empty());
}

TEST_F(StreamTables, MeasureBetweenTimedEventsThatHaveCompleted) {
  bp_stream* const stream = make_stream();
  bp_event* const start = make_event(BP_EVENT_TIMING);
  bp_event* const end = make_event(BP_EVENT_TIMING);
  bp_event* const untimed = make_event();
  int64_t elapsed = -1;
  ASSERT_EQ(events.record(&machine, start, stream), BP_OK);
  EXPECT_EQ(events.elapsed_ns(&machine, start, end, &elapsed), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.elapsed_ns: end has not completed");
  EXPECT_EQ(events.elapsed_ns(&machine, untimed, end, &elapsed), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.elapsed_ns: start was made without BP_EVENT_TIMING");
  ASSERT_EQ(events.record(&machine, end, stream), BP_OK);
  ASSERT_EQ(events.elapsed_ns(&machine, start, end, &elapsed), BP_OK) << text;
  EXPECT_GE(elapsed, 0);
  const bp_event_ops without_time = EventOps<TraitsWithoutOneClock<false>>::table();
  EXPECT_EQ(without_time.elapsed_ns(&machine, start, end, &elapsed), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "event.elapsed_ns: start has no time: it was not recorded, or its record failed");
  const bp_event_ops two_clocks = EventOps<TraitsWithoutOneClock<true>>::table();
  EXPECT_EQ(two_clocks.elapsed_ns(&machine, start, end, &elapsed), BP_UNSUPPORTED);
  destroy({start, end, untimed});
}

TEST(Deadlines, RunOutUnlessTheyAreInfinite) {
  EXPECT_EQ(Deadline(0).left_ns(), 0u);
  EXPECT_EQ(Deadline(UINT64_MAX).left_ns(), UINT64_MAX);
  EXPECT_LE(Deadline(1'000'000'000).left_ns(), 1'000'000'000u);
  EXPECT_GT(Deadline(UINT64_MAX - 1).left_ns(), UINT64_MAX / 2);
}

TEST_F(StreamTables, OfferEventsThatProcessesShare) {
  struct Whole : Machine {
    bp_stream_ops streams;
    bp_event_ops events;
    std::unique_ptr<SharedEvents> shared_events;
  };
  Whole whole{machine, streams, events, nullptr};
  Machine* const self = &whole;
  whole.streams.self = whole.events.self = self;
  const bp_event_desc desc{.struct_size = sizeof(desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_EXPORTABLE};
  bp_event* event = nullptr;
  EXPECT_EQ(whole.events.create(self, nullptr, &desc, &event), BP_UNSUPPORTED);
  offer_shared_events<Traits>(whole, "backplane.test.event");
  ASSERT_EQ(whole.events.create(self, nullptr, &desc, &event), BP_OK) << text;
  uint32_t done = 0;
  EXPECT_EQ(whole.events.query(self, event, &done), BP_OK) << text;
  EXPECT_EQ(done, 1u);
  bp_external_handle handle{};
  EXPECT_EQ(whole.events.export_event(self, nullptr, BP_EXTERNAL_OPAQUE_FD, &handle),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(whole.events.destroy(self, event), BP_OK) << text;
  EXPECT_TRUE(card.events.empty());
}

TEST_F(StreamTables, LoseTheWorkAndTheSignalsOfALostDevice) {
  StreamSet<Stream, Queue> set;
  HandleSet<Event> all;
  Executor executor;
  Stream* const stream =
      set.add(std::make_unique<Stream>(card, std::make_shared<Queue>(host, executor, true)));
  Event signalled(card, BP_EVENT_HOST_SIGNAL), recorded(card, 0);
  all.add(&signalled);
  all.add(&recorded);
  const Outcome loss{.status = BP_DEVICE_LOST, .text = "it fell off the bus"};
  lose_work(set, all, loss, [](Point& point) -> Point& { return point; });
  EXPECT_EQ(stream->queue->surface(), BP_DEVICE_LOST);
  EXPECT_EQ(text, "it fell off the bus");
  EXPECT_EQ(stream->queue->admit(), BP_DEVICE_LOST);
  EXPECT_EQ(text, "it fell off the bus");
  ASSERT_TRUE(signalled.latest()->is_complete());
  EXPECT_EQ(signalled.latest()->outcome().status, BP_DEVICE_LOST);
  EXPECT_EQ(recorded.latest(), nullptr);
  set.delete_all();
}

TEST_F(StreamTables, CallBackWhenAnEventIsCompleteAndHoldNoStream) {
  struct Calls {
    std::atomic<int> count = 0;
    std::atomic<bp_status> status = BP_OK;
    static void note(void* self, bp_status status) {
      static_cast<Calls*>(self)->status = status;
      ++static_cast<Calls*>(self)->count;
    }
  };
  Calls calls;
  bp_stream* const stream = make_stream();
  bp_event *const event = make_event(), *const gate = make_event(BP_EVENT_HOST_SIGNAL);
  EXPECT_EQ(events.on_complete(&machine, event, nullptr, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(events.on_complete(&machine, nullptr, Calls::note, &calls), BP_INVALID_ARGUMENT);
  ASSERT_EQ(events.on_complete(&machine, event, Calls::note, &calls), BP_OK) << text;
  EXPECT_EQ(calls.count, 1) << "an event never recorded";
  ASSERT_EQ(streams.wait_event(&machine, stream, gate), BP_OK);
  ASSERT_EQ(events.record(&machine, event, stream), BP_OK);
  ASSERT_EQ(events.on_complete(&machine, event, Calls::note, &calls), BP_OK) << text;
  ASSERT_EQ(events.on_complete(&machine, gate, Calls::note, &calls), BP_OK) << text;
  destroy({event});
  EXPECT_EQ(calls.count, 1) << "nothing is complete";
  ASSERT_EQ(events.signal(&machine, gate, BP_ABORTED), BP_OK);
  ASSERT_TRUE(card.executor.wait_idle());
  EXPECT_EQ(calls.count, 3);
  EXPECT_EQ(calls.status, BP_ABORTED);
  destroy({gate});
}

}  // namespace
}  // namespace bp
