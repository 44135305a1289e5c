// Tests events that two backends share as two processes do, through the tables that a host uses.
#include "backplane/shell/shared_events.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <string>

#include "backends/shell/test_process.hpp"

namespace bp {
namespace {

size_t descriptor_count() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// The result of an export. Its descriptor is closed when the test ends.
struct Handle : bp_external_handle {
  Handle() : bp_external_handle{} {
    struct_size = sizeof(bp_external_handle);
    struct_type = BP_STRUCT_EXTERNAL_HANDLE;
    fd = -1;
  }
  Handle(const Handle&) = delete;
  ~Handle() { close(fd); }
};

bp_event* import(Process& to, const bp_external_handle& handle) {
  bp_event* event = nullptr;
  EXPECT_EQ(to.events.import_event(&to, to.device(), &handle, &event), BP_OK) << to.text;
  return event;
}

// An event of process a, which b has imported.
class SharedEventsTest : public testing::Test {
 protected:
  SharedEventsTest() : imported(share(exported)) {}

  bp_event* share(bp_event* event) {
    Handle handle;
    EXPECT_EQ(a.events.export_event(&a, event, BP_EXTERNAL_OPAQUE_FD, &handle), BP_OK) << a.text;
    return import(b, handle);
  }

  // Records `event` in the process `by`, after work that ends when the gate is signalled.
  bp_event* record_held(Process& by, bp_event* event) {
    bp_stream* const stream = by.make_stream();
    bp_event* const gate = by.hold(stream);
    EXPECT_EQ(by.record(event, stream), BP_OK) << by.text;
    return gate;
  }
  void record(Process& by, bp_event* event) {
    EXPECT_EQ(by.record(event, by.make_stream()), BP_OK) << by.text;
  }
  bp_stream* make_waiter(Process& in, bp_event* event) {
    bp_stream* const stream = in.make_stream();
    EXPECT_EQ(in.streams.wait_event(&in, stream, event), BP_OK) << in.text;
    return stream;
  }

  const size_t descriptors = descriptor_count();
  Process a, b;
  bp_event *const exported = a.make_event(BP_EVENT_EXPORTABLE), *const imported;
};

// ---- Records ------------------------------------------------------------------------------------

TEST_F(SharedEventsTest, TellEachSideWhenTheOthersRecordHasEnded) {
  EXPECT_EQ(b.is_done(imported), 1u) << "nothing was recorded";
  EXPECT_EQ(b.synchronize(imported), BP_OK);
  const auto expect_told = [&](Process& by, bp_event* recorded, Process& to, bp_event* waited) {
    bp_event* const gate = record_held(by, recorded);
    EXPECT_EQ(to.is_done(waited), 0u);
    EXPECT_EQ(to.synchronize(waited, kShortNs), BP_TIMEOUT);
    EXPECT_EQ(to.text,
              "event.synchronize: what another process recorded did not end within 2000000 ns");
    by.signal(gate);
    EXPECT_EQ(to.is_done(waited), 1u);
    EXPECT_EQ(to.synchronize(waited), BP_OK);
  };
  expect_told(a, exported, b, imported);
  expect_told(b, imported, a, exported);
}

TEST_F(SharedEventsTest, HoldStreamsBackUntilTheOthersRecordHasEnded) {
  bp_event* const gate = record_held(a, exported);
  bp_stream *const one = make_waiter(b, imported), *const two = make_waiter(b, imported);
  EXPECT_FALSE(b.is_idle(one) || b.is_idle(two));
  a.signal(gate);
  EXPECT_EQ(b.settle(one), BP_OK);
  EXPECT_EQ(b.settle(two), BP_OK);
}

TEST_F(SharedEventsTest, CallBackWhenTheOthersRecordHasEnded) {
  std::atomic<bp_status> told = BP_OK;
  const auto tell = [](void* user_data, bp_status status) {
    *static_cast<std::atomic<bp_status>*>(user_data) = status;
  };
  bp_event* const gate = record_held(a, exported);
  EXPECT_EQ(b.events.on_complete(&b, imported, nullptr, &told), BP_INVALID_ARGUMENT);
  ASSERT_EQ(b.events.on_complete(&b, imported, tell, &told), BP_OK) << b.text;
  EXPECT_EQ(told, BP_OK);
  a.signal(gate, BP_INTERNAL);
  for (int i = 0; i < 10'000 && told == BP_OK; ++i) usleep(1000);
  EXPECT_EQ(told, BP_INTERNAL);
}

TEST_F(SharedEventsTest, CarryAFailureToTheOtherSide) {
  bp_event* const gate = record_held(a, exported);
  bp_stream* const waiter = make_waiter(b, imported);
  a.signal(gate, BP_INTERNAL);
  EXPECT_EQ(b.settle(waiter), BP_INTERNAL);
  EXPECT_EQ(b.failure_text(waiter), "the work that another process recorded has failed");
  EXPECT_EQ(b.settle(make_waiter(b, imported)), BP_INTERNAL) << "who comes later gets it too";
  EXPECT_EQ(b.synchronize(imported), BP_INTERNAL);
  EXPECT_EQ(b.text, "event.synchronize: the work that another process recorded has failed");
  EXPECT_EQ(a.synchronize(exported), BP_INTERNAL) << "and so does the side that recorded";
  a.signal(record_held(a, exported), BP_ABORTED);
  EXPECT_EQ(b.synchronize(imported), BP_ABORTED);
  EXPECT_EQ(b.text, "event.synchronize: the work that another process recorded was aborted");
  record(a, exported);
  EXPECT_EQ(b.synchronize(imported), BP_OK) << "until it is recorded again";
}

TEST_F(SharedEventsTest, StandForTheLatestRecordOfEitherSide) {
  bp_event* const first = record_held(a, exported);
  record(b, imported);
  EXPECT_EQ(a.is_done(exported), 1u);
  EXPECT_EQ(a.synchronize(exported), BP_OK);
  bp_event* const second = record_held(a, exported);
  a.signal(first);
  EXPECT_EQ(b.is_done(imported), 0u);
  EXPECT_EQ(a.is_done(exported), 0u);
  a.signal(second);
  EXPECT_EQ(b.is_done(imported), 1u);
}

TEST_F(SharedEventsTest, WaitInTheBackendForWhatTheirOwnSideRecorded) {
  bp_event* const gate = record_held(a, exported);
  const size_t count = a.event_count();
  bp_stream* const own = make_waiter(a, exported);
  EXPECT_EQ(a.event_count(), count) << "the event itself is waited for";
  a.signal(gate);
  EXPECT_TRUE(a.is_idle(own));
  bp_event* const other = record_held(b, imported);
  bp_stream* const waiter = make_waiter(a, exported);
  EXPECT_EQ(a.event_count(), count + 1) << "one that the host signals is waited for";
  b.signal(other);
  EXPECT_EQ(a.settle(waiter), BP_OK);
}

TEST_F(SharedEventsTest, TakeNoRecordThatTheBackendRefuses) {
  record(a, exported);
  bp_event* const gate = record_held(a, exported);
  for (int i = 0; i < 300; ++i) {  // More than there are places for.
    a.failing_call = i % 2 == 0 ? "record" : "add_callback";
    ASSERT_EQ(a.record(exported, a.make_stream()), BP_OUT_OF_MEMORY);
    ASSERT_EQ(a.text, "no room");
  }
  a.failing_call = "";
  EXPECT_EQ(b.is_done(imported), 0u) << "the record before them counts";
  a.signal(gate);
  EXPECT_EQ(b.is_done(imported), 1u);
}

// On an idle stream a record completes before it is the latest. Without a hold on its place, the
// other side could claim the place, and a reader of the latest record would then search for it for
// ever.
TEST_F(SharedEventsTest, KeepTheirPlaceWhereARecordCompletesAtOnce) {
  a.on_callback = [&] { record(b, imported); };
  record(a, exported);
  EXPECT_EQ(a.is_done(exported), 1u);
  EXPECT_EQ(b.is_done(imported), 1u);
}

TEST_F(SharedEventsTest, RefuseARecordInACapture) {
  auto* const stream = a.make_stream();
  a.capture(stream);
  EXPECT_EQ(a.record(exported, stream), BP_INVALID_ARGUMENT);
  EXPECT_NE(a.text.find("event.record: the stream captures"), std::string::npos) << a.text;
  EXPECT_EQ(a.record(a.make_event(0), stream), BP_OK) << "an event that nobody shares";
}

TEST_F(SharedEventsTest, HaveTimesOfTheirOwnSideAlone) {
  bp_event* const other = a.make_event(BP_EVENT_EXPORTABLE | BP_EVENT_TIMING);
  bp_event* const of_b = share(other);
  record(a, exported);
  record(a, other);
  int64_t elapsed_ns = 0;
  EXPECT_EQ(a.events.elapsed_ns(&a, exported, other, &elapsed_ns), BP_OK);
  EXPECT_EQ(elapsed_ns, 77);
  record(b, of_b);
  const std::string text = " was recorded last by another process, whose times are not known";
  EXPECT_EQ(a.events.elapsed_ns(&a, exported, other, &elapsed_ns), BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.text, "event.elapsed_ns: end" + text);
  EXPECT_EQ(a.events.elapsed_ns(&a, other, a.make_event(0), &elapsed_ns), BP_INVALID_ARGUMENT);
  EXPECT_EQ(a.text, "event.elapsed_ns: start" + text);
}

// ---- Lives --------------------------------------------------------------------------------------

TEST_F(SharedEventsTest, LiveOnWhenEitherSideEndsFirst) {
  bp_event* const kept = a.make_event(BP_EVENT_EXPORTABLE);
  bp_event* const ended = share(kept);
  bp_event* const gate = record_held(a, exported);
  EXPECT_EQ(a.events.destroy(&a, exported), BP_OK);
  EXPECT_EQ(b.is_done(imported), 0u);
  bp_stream* const waiter = make_waiter(b, imported);
  a.signal(gate);
  EXPECT_EQ(b.settle(waiter), BP_OK);
  EXPECT_EQ(b.synchronize(imported), BP_OK);
  bp_event* const pending = record_held(b, ended);
  EXPECT_EQ(b.events.destroy(&b, ended), BP_OK);
  EXPECT_EQ(a.is_done(kept), 0u);
  b.signal(pending);
  EXPECT_EQ(a.is_done(kept), 1u);
  EXPECT_EQ(b.events.destroy(&b, imported), BP_OK);
  EXPECT_EQ(a.events.destroy(&a, kept), BP_OK);
  EXPECT_EQ(descriptor_count(), descriptors);
}

TEST_F(SharedEventsTest, StopTheirWaitsWhenTheBackendEnds) {
  bp_event* const gate = record_held(a, exported);
  const size_t count = b.event_count();
  bp_stream* const waiter = make_waiter(b, imported);
  EXPECT_EQ(b.event_count(), count + 1);
  b.end_sharing();
  EXPECT_EQ(b.event_count(), count);
  a.signal(gate);
  EXPECT_FALSE(b.is_idle(waiter)) << "nobody tells it any more";
}

TEST_F(SharedEventsTest, GiveBackWhatEachWaitHeld) {
  for (int i = 0; i < 300; ++i) {  // More than there are places for.
    bp_event* const gate = record_held(a, exported);
    b.failing_call = i % 2 == 0 ? "create" : "wait_event";
    EXPECT_EQ(b.streams.wait_event(&b, b.make_stream(), imported), BP_OUT_OF_MEMORY);
    b.failing_call = "";
    EXPECT_EQ(b.is_done(imported), 0u);
    EXPECT_EQ(b.synchronize(imported, 0), BP_TIMEOUT);
    bp_stream* const waiter = make_waiter(b, imported);
    a.signal(gate);
    ASSERT_EQ(b.settle(waiter), BP_OK);
  }
  EXPECT_EQ(b.events.destroy(&b, imported), BP_OK);
  EXPECT_EQ(a.events.destroy(&a, exported), BP_OK);
  EXPECT_EQ(descriptor_count(), descriptors);
  b.end_sharing();
  EXPECT_EQ(b.event_count(), 0u);
}

// ---- What is passed on, and what is refused -----------------------------------------------------

TEST(SharedEvents, LeaveEventsToTheBackendThatNobodyShares) {
  Process process;
  const size_t descriptors = descriptor_count();
  bp_event* const event = process.make_event(BP_EVENT_TIMING);
  EXPECT_EQ(process.last_flags, bp_event_flags{BP_EVENT_TIMING});
  bp_stream* const stream = process.make_stream();
  bp_event* const gate = process.hold(stream);
  EXPECT_EQ(process.record(event, stream), BP_OK);
  EXPECT_EQ(process.is_done(event), 0u);
  EXPECT_EQ(process.synchronize(event, kShortNs), BP_TIMEOUT);
  EXPECT_EQ(process.text, "") << "the backend's own refusal";
  process.signal(gate);
  EXPECT_EQ(process.is_done(event), 1u);
  EXPECT_EQ(descriptor_count(), descriptors);
  EXPECT_EQ(process.events.destroy(&process, event), BP_OK);
}

TEST(SharedEvents, AreMadeOfPlainEventsOfTheBackend) {
  Process p;
  const size_t descriptors = descriptor_count();
  const auto create = [&](const bp_event_desc& desc, bp_event** out_event) {
    return p.events.create(&p, p.device(), &desc, out_event);
  };
  bp_event_desc desc{.struct_size = sizeof(desc),
                     .struct_type = BP_STRUCT_EVENT_DESC,
                     .flags = BP_EVENT_EXPORTABLE | BP_EVENT_TIMING};
  EXPECT_EQ(create(desc, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(p.text, "event.create: out_event is NULL");
  bp_event* event = nullptr;
  p.failing_call = "create";
  EXPECT_EQ(create(desc, &event), BP_OUT_OF_MEMORY);
  p.failing_call = "";
  desc.flags |= BP_EVENT_HOST_SIGNAL;
  EXPECT_EQ(create(desc, &event), BP_UNSUPPORTED);
  EXPECT_NE(p.text.find("event.create: flags has BP_EVENT_HOST_SIGNAL and"), std::string::npos);
  desc.flags = BP_EVENT_EXPORTABLE;
  EXPECT_EQ(p.events.create(&p, nullptr, &desc, &event), BP_INVALID_ARGUMENT);
  EXPECT_EQ(p.text, "event.create: no device");
  desc.struct_type = 0;
  EXPECT_EQ(create(desc, &event), BP_INVALID_ARGUMENT);
  EXPECT_EQ(event, nullptr);
  EXPECT_EQ(p.event_count(), 0u);
  EXPECT_EQ(descriptor_count(), descriptors);
  p.make_event(BP_EVENT_EXPORTABLE | BP_EVENT_TIMING);
  EXPECT_EQ(p.last_flags, bp_event_flags{BP_EVENT_TIMING});
}

TEST_F(SharedEventsTest, AreExportedByTheirMakerAsADescriptor) {
  Handle handle;
  const auto failure = [&](Process& by, bp_event* event, bp_external_type type,
                           bp_external_handle* out_handle) {
    const bp_status status = by.events.export_event(&by, event, type, out_handle);
    return std::to_string(status) + " " + by.text;
  };
  const std::string invalid = std::to_string(BP_INVALID_ARGUMENT) + " export_event: ";
  const std::string foreign = invalid + "event is not one made with BP_EVENT_EXPORTABLE";
  EXPECT_EQ(failure(a, a.make_event(0), BP_EXTERNAL_OPAQUE_FD, &handle), foreign);
  EXPECT_EQ(failure(b, imported, BP_EXTERNAL_OPAQUE_FD, &handle), foreign);
  EXPECT_EQ(failure(b, exported, BP_EXTERNAL_OPAQUE_FD, &handle), invalid + "no event");
  EXPECT_EQ(failure(a, exported, BP_EXTERNAL_OPAQUE_BYTES, &handle),
            std::to_string(BP_UNSUPPORTED) +
                " export_event: type is 7; BP_EXTERNAL_OPAQUE_FD, a descriptor, is offered");
  EXPECT_EQ(failure(a, exported, BP_EXTERNAL_OPAQUE_FD, nullptr), invalid + "out_handle is NULL");
  EXPECT_EQ(handle.fd, -1);
  ASSERT_EQ(a.events.export_event(&a, exported, BP_EXTERNAL_OPAQUE_FD, &handle), BP_OK);
  EXPECT_EQ(handle.type, bp_external_type{BP_EXTERNAL_OPAQUE_FD});
  EXPECT_EQ(handle.size_bytes, 0u);
  EXPECT_GE(handle.fd, 0);
}

TEST_F(SharedEventsTest, AreImportedFromNothingElse) {
  Handle good;
  ASSERT_EQ(a.events.export_event(&a, exported, BP_EXTERNAL_OPAQUE_FD, &good), BP_OK);
  const int wrong = open("/dev/null", O_RDWR | O_CLOEXEC);
  const size_t count = b.event_count(), open_count = descriptor_count();
  const auto failure = [&](const std::function<void(bp_external_handle&)>& change) {
    bp_external_handle handle = good;
    change(handle);
    bp_event* event = nullptr;
    const bp_status status = b.events.import_event(&b, b.device(), &handle, &event);
    EXPECT_EQ(event, nullptr);
    return std::to_string(status) + " " + b.text.substr(0, b.text.find(" is \"/dev"));
  };
  const std::string invalid = std::to_string(BP_INVALID_ARGUMENT) + " import_event: ";
  EXPECT_EQ(failure([&](auto& h) { h.fd = wrong; }),
            invalid + "descriptor " + std::to_string(wrong));
  EXPECT_EQ(failure([](auto& h) { h.fd = -1; }).find(invalid + "descriptor -1 is not open"), 0u);
  EXPECT_EQ(failure([](auto& h) { h.size_bytes = 8; }),
            invalid + "handle: size_bytes is 8, and that of an event is 0");
  EXPECT_EQ(failure([](auto& h) { h.struct_type = 0; }),
            invalid + "handle: struct_type is 0, not 21");
  EXPECT_EQ(failure([](auto& h) { h.type = BP_EXTERNAL_OPAQUE_BYTES; }),
            std::to_string(BP_UNSUPPORTED) +
                " import_event: type is 7; BP_EXTERNAL_OPAQUE_FD, a descriptor, is offered");
  bp_event* event = nullptr;
  EXPECT_EQ(b.events.import_event(&b, nullptr, &good, &event), BP_INVALID_ARGUMENT);
  EXPECT_EQ(b.events.import_event(&b, b.device(), nullptr, &event), BP_INVALID_ARGUMENT);
  EXPECT_EQ(b.events.import_event(&b, b.device(), &good, nullptr), BP_INVALID_ARGUMENT);
  b.failing_call = "create";
  EXPECT_EQ(b.events.import_event(&b, b.device(), &good, &event), BP_OUT_OF_MEMORY);
  EXPECT_EQ(b.event_count(), count);
  EXPECT_EQ(descriptor_count(), open_count);
  close(wrong);
}

}  // namespace
}  // namespace bp
