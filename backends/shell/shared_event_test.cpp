#include "backplane/shell/shared_event.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

constexpr const char* kKind = "backplane.test.event";
constexpr uint64_t kForever = UINT64_MAX;

// Returns a second participant of the same event.
std::unique_ptr<SharedEvent> guest_of(const SharedEvent& event) {
  const int descriptor = event.duplicate("export");
  auto guest = std::make_unique<SharedEvent>("import", kKind, descriptor);
  close(descriptor);
  return guest;
}

class SharedEventTest : public testing::Test {
 protected:
  SharedRecord record(SharedEvent& by) {
    const SharedRecord made = by.claim("record");
    by.publish(made);
    return made;
  }

  // Returns the status that a wait of `by` gives.
  bp_status outcome(SharedEvent& by) {
    SharedRecord held;
    EXPECT_TRUE(by.hold_latest(held));
    bp_status status = BP_NOT_FOUND;
    EXPECT_EQ(by.wait(held, kForever, is_stopped, status), SharedWait::kDone);
    by.release(held);
    return status;
  }

  SharedEvent event{"create", kKind};
  std::atomic<bool> is_stopped = false;
};

TEST_F(SharedEventTest, HasNothingToWaitForUntilSomethingIsRecorded) {
  SharedRecord held;
  EXPECT_FALSE(event.latest(held));
  EXPECT_FALSE(event.hold_latest(held));
  event.abandon(event.claim("record"));
  const SharedRecord unpublished = event.claim("record");
  event.complete(unpublished, BP_OK);
  EXPECT_FALSE(event.hold_latest(held)) << "what is not published is not recorded";
  EXPECT_NE(event.claim("record").place, unpublished.place) << "it may still be published";
}

TEST_F(SharedEventTest, TellsTheOtherSideHowTheLatestRecordEnded) {
  const std::unique_ptr<SharedEvent> guest = guest_of(event);
  const SharedRecord first = record(event);
  SharedRecord held;
  ASSERT_TRUE(guest->hold_latest(held));
  EXPECT_EQ(held, first);
  EXPECT_FALSE(guest->is_done(held));
  bp_status status = BP_NOT_FOUND;
  EXPECT_EQ(guest->wait(held, 0, is_stopped, status), SharedWait::kTimeout);
  EXPECT_EQ(guest->wait(held, 1'000'000, is_stopped, status), SharedWait::kTimeout);
  const SharedRecord second = record(event);
  event.complete(second, BP_ABORTED);
  EXPECT_FALSE(guest->is_done(held)) << "the first has not ended with the second";
  EXPECT_EQ(outcome(*guest), BP_ABORTED);
  event.complete(first, BP_OK);
  EXPECT_EQ(guest->wait(held, kForever, is_stopped, status), SharedWait::kDone);
  EXPECT_EQ(status, BP_OK);
  guest->release(held);
}

TEST_F(SharedEventTest, WakesWhoWaits) {
  const std::unique_ptr<SharedEvent> guest = guest_of(event);
  for (int round = 0; round < 200; ++round) {
    const SharedRecord made = record(event);
    std::thread waiter([&] { EXPECT_EQ(outcome(*guest), BP_INTERNAL); });
    event.complete(made, BP_INTERNAL);
    waiter.join();
  }
}

TEST_F(SharedEventTest, StopsWaitingWhenItIsTold) {
  record(event);
  SharedRecord held;
  ASSERT_TRUE(event.hold_latest(held));
  SharedWait end = SharedWait::kDone;
  std::thread waiter([&] {
    bp_status status = BP_OK;
    end = event.wait(held, kForever, is_stopped, status);
  });
  is_stopped = true;
  event.wake();
  waiter.join();
  EXPECT_EQ(end, SharedWait::kStopped);
  event.release(held);
}

TEST_F(SharedEventTest, KeepsWhatSomebodyHolds) {
  const SharedRecord first = record(event);
  SharedRecord held;
  ASSERT_TRUE(event.hold_latest(held));
  event.complete(first, BP_INTERNAL);
  for (int i = 0; i < 2000; ++i) event.complete(record(event), BP_OK);
  bp_status status = BP_OK;
  EXPECT_EQ(event.wait(held, kForever, is_stopped, status), SharedWait::kDone);
  EXPECT_EQ(status, BP_INTERNAL);
  event.release(held);
}

TEST_F(SharedEventTest, RefusesMoreUnfinishedRecordsThanItHasPlacesFor) {
  std::vector<SharedRecord> records;
  records.reserve(255);
  for (int i = 0; i < 255; ++i) records.push_back(record(event));
  try {
    event.claim("record");
    ADD_FAILURE() << "there is a place for a 256th record";
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_OUT_OF_MEMORY);
    EXPECT_NE(std::string(e.what()).find("record: 255 records"), std::string::npos) << e.what();
  }
  event.complete(records[77], BP_OK);
  EXPECT_EQ(event.claim("record").place, records[77].place);
}

TEST_F(SharedEventTest, HasRacingRecordersAndWaiters) {
  const std::unique_ptr<SharedEvent> guest = guest_of(event);
  event.complete(record(event), BP_OK);
  const auto work = [this](SharedEvent& by, SharedEvent& other) {
    for (int i = 0; i < 2000; ++i) {
      by.complete(record(by), BP_OK);
      EXPECT_EQ(outcome(other), BP_OK);
    }
  };
  std::thread one([&] { work(event, *guest); }), two([&] { work(*guest, event); });
  one.join();
  two.join();
}

TEST_F(SharedEventTest, RefusesMoreParticipantsThanItHasNumbersFor) {
  const int descriptor = event.duplicate("export");
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const int others = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct flock lock {};  // One lock stands for 1023 more participants; each locks the byte of its
                         // number.
  lock.l_type = F_WRLCK;
  lock.l_start = (off_t{1} << 32) + 1;
  lock.l_len = 1023;
  ASSERT_EQ(fcntl(others, F_OFD_SETLK, &lock), 0);
  try {
    const SharedEvent guest("import", kKind, descriptor);
    ADD_FAILURE() << "there is a number for a 1025th participant";
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_OUT_OF_MEMORY);
    EXPECT_EQ(std::string(e.what()),
              "import: the event is shared 1024 times, and there is room for no more");
  }
  close(others);
  EXPECT_NO_THROW(SharedEvent("import", kKind, descriptor));
  close(descriptor);
}

TEST(SharedEvent, RefusesADescriptorOfAnythingElse) {
  const int descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int wrong : {-1, descriptor}) {
    try {
      const SharedEvent event("import", kKind, wrong);
      ADD_FAILURE() << "took descriptor " << wrong;
    } catch (const StatusError& e) {
      EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
    }
  }
  const SharedEvent event("create", kKind);
  const int good = event.duplicate("export");
  EXPECT_THROW(SharedEvent("import", "backplane.other.event", good), StatusError);
  close(good);
  close(descriptor);
}

}  // namespace
}  // namespace bp
