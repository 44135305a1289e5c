// Tests what is left of a shared event when processes that share it are killed or exit.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "backends/shell/test_process.hpp"
#include "backplane/shell/shared_event.hpp"

namespace bp {
namespace {

constexpr const char* kKind = "backplane.test.event";
constexpr uint64_t kForever = UINT64_MAX;
constexpr size_t kPlaces = 255;

// A pipe between processes.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    close(ends_[0]);
    close_writer();
  }
  Pipe(const Pipe&) = delete;

  void close_writer() { close(std::exchange(ends_[1], -1)); }
  template <typename T>
  void write(const T& what) const {
    if (::write(ends_[1], &what, sizeof(T)) != ssize_t{sizeof(T)}) _exit(1);
  }
  // Reads a value. Returns false if all processes that could write have ended.
  template <typename T>
  bool read(T& out_what) const {
    return ::read(ends_[0], &out_what, sizeof(T)) == ssize_t{sizeof(T)};
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

// A child process that runs `body`, and then waits until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    EXPECT_GE(pid_, 0);
    if (pid_ != 0) {
      ready_.close_writer();
      return;
    }
    try {
      body();
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
    if (testing::Test::HasFailure()) _exit(1);
    ready_.write('r');
    while (true) pause();
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;

  // Waits until `body` has run. Returns false if it failed.
  bool is_ready() const {
    char what = 0;
    return ready_.read(what);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = -1;
  }

 private:
  Pipe ready_;
  pid_t pid_;
};

std::unique_ptr<SharedEvent> guest_of(const SharedEvent& event) {
  const int descriptor = event.duplicate("export");
  auto guest = std::make_unique<SharedEvent>("import", kKind, descriptor);
  close(descriptor);
  return guest;
}

SharedRecord record(SharedEvent& by) {
  const SharedRecord made = by.claim("record");
  by.publish(made);
  return made;
}

// Claims all free places.
std::vector<SharedRecord> claim_all(SharedEvent& by) {
  std::vector<SharedRecord> claimed;
  try {
    while (true) claimed.push_back(by.claim("record"));
  } catch (const StatusError&) {
    return claimed;
  }
}

size_t free_count(SharedEvent& by) {
  const std::vector<SharedRecord> claimed = claim_all(by);
  for (const SharedRecord& each : claimed) by.abandon(each);
  return claimed.size();
}

// Uses the event as a participant: records, waits, and claims until no place is free.
void work(const SharedEvent& event) {
  const std::unique_ptr<SharedEvent> guest = guest_of(event);
  try {
    for (int i = 0; i < 20; ++i) {
      const SharedRecord kept = guest->claim("record"), made = record(*guest);
      SharedRecord held;
      guest->hold_latest(held);
      guest->complete(made, BP_OK);
      guest->release(held);
      guest->abandon(kept);
    }
  } catch (const StatusError&) {
    // Another process has all places at the moment.
  }
  free_count(*guest);
}

class SharedEventDeathTest : public testing::Test {
 protected:
  // Returns how a wait of `by` for the latest record ends.
  SharedWait outcome(SharedEvent& by) {
    SharedRecord held;
    EXPECT_TRUE(by.hold_latest(held));
    const SharedWait end = by.wait(held, kForever, is_stopped, status);
    by.release(held);
    return end;
  }

  SharedEvent event{"create", kKind};
  std::atomic<bool> is_stopped = false;
  bp_status status = BP_NOT_FOUND;
};

TEST_F(SharedEventDeathTest, EndsTheWaitsForARecordOfAKilledProcess) {
  Child child([&] { record(*guest_of(event).release()); });
  ASSERT_TRUE(child.is_ready());
  SharedRecord held;
  ASSERT_TRUE(event.hold_latest(held));
  EXPECT_EQ(event.wait(held, 0, is_stopped, status), SharedWait::kTimeout);
  EXPECT_FALSE(event.is_done(held));
  const std::unique_ptr<SharedEvent> other = guest_of(event);
  SharedWait of_other = SharedWait::kDone;
  std::thread waiter([&] { of_other = outcome(*other); });
  child.kill();
  EXPECT_EQ(event.wait(held, kForever, is_stopped, status), SharedWait::kLost);
  EXPECT_TRUE(event.is_done(held));
  waiter.join();
  EXPECT_EQ(of_other, SharedWait::kLost);
  EXPECT_EQ(free_count(event), kPlaces - 1) << "all but that of the latest record";
  EXPECT_EQ(event.wait(held, kForever, is_stopped, status), SharedWait::kLost) << "it stays lost";
  event.release(held);
  EXPECT_EQ(outcome(event), SharedWait::kLost) << "for who comes later too";
}

TEST_F(SharedEventDeathTest, KeepsARecordLostWhenItsParticipantIsReplaced) {
  Child child([&] { record(*guest_of(event).release()); });
  ASSERT_TRUE(child.is_ready());
  SharedRecord held;
  ASSERT_TRUE(event.hold_latest(held));
  child.kill();
  const std::unique_ptr<SharedEvent> successor = guest_of(event);  // It takes the child's number.
  EXPECT_EQ(event.wait(held, kForever, is_stopped, status), SharedWait::kLost);
  const SharedRecord own = record(*successor);
  EXPECT_EQ(event.wait(held, kForever, is_stopped, status), SharedWait::kLost);
  event.release(held);
  successor->complete(own, BP_OK);
  EXPECT_EQ(outcome(event), SharedWait::kDone);
}

TEST_F(SharedEventDeathTest, KeepsWhatAKilledProcessHadCompleted) {
  Child child([&] {
    SharedEvent& guest = *guest_of(event).release();
    guest.complete(record(guest), BP_OUT_OF_MEMORY);
  });
  ASSERT_TRUE(child.is_ready());
  child.kill();
  EXPECT_EQ(outcome(event), SharedWait::kDone);
  EXPECT_EQ(status, BP_OUT_OF_MEMORY);
  EXPECT_EQ(free_count(event), kPlaces - 1);
  EXPECT_EQ(outcome(event), SharedWait::kDone);
}

// A process may exit with work that has not completed, because its backend was unloaded.
TEST_F(SharedEventDeathTest, GivesUpWhatAProcessLeavesThatExits) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    {
      const std::unique_ptr<SharedEvent> guest = guest_of(event);
      for (int i = 0; i < 100; ++i) record(*guest);
      SharedRecord held;
      guest->hold_latest(held);
    }
    _exit(HasFailure() ? 1 : 0);
  }
  int exit_status = -1;
  ASSERT_EQ(waitpid(pid, &exit_status, 0), pid);
  ASSERT_EQ(exit_status, 0);
  EXPECT_EQ(outcome(event), SharedWait::kLost);
  event.complete(record(event), BP_OK);
  EXPECT_EQ(outcome(event), SharedWait::kDone);
  EXPECT_EQ(free_count(event), kPlaces - 1);
}

TEST_F(SharedEventDeathTest, ReusesThePlacesThatAKilledProcessHeld) {
  Child child([&] {
    SharedEvent& guest = *guest_of(event).release();
    SharedRecord held;
    for (size_t i = 0; i < kPlaces; ++i) {
      guest.complete(record(guest), BP_OK);
      EXPECT_TRUE(guest.hold_latest(held));
    }
  });
  ASSERT_TRUE(child.is_ready());
  EXPECT_EQ(free_count(event), 0u);
  child.kill();
  EXPECT_EQ(free_count(event), kPlaces - 1);
}

// Each child, and the survivor, finds what the earlier children left.
TEST_F(SharedEventDeathTest, ReusesThePlacesOfAThousandKilledProcesses) {
  event.complete(record(event), BP_OK);
  for (int round = 0; round < 1000; ++round) {
    Child child([&] {
      SharedEvent& guest = *guest_of(event).release();
      SharedRecord held;
      EXPECT_TRUE(guest.hold_latest(held));
      EXPECT_EQ(claim_all(guest).size(), kPlaces - 1);
    });
    ASSERT_TRUE(child.is_ready()) << round;
    if (round == 0) {
      ASSERT_EQ(free_count(event), 0u) << "the child lives";
    }
    child.kill();
    if (round % 2 == 0) {
      ASSERT_EQ(free_count(event), kPlaces - 1) << round;
    }
  }
}

TEST_F(SharedEventDeathTest, GivesEachPlaceToOneOfTwoSurvivors) {
  event.complete(record(event), BP_OK);
  for (int round = 0; round < 50; ++round) {
    const Pipe here, go, claimed;
    const auto survive = [&] {
      SharedEvent& guest = *guest_of(event).release();
      char what = 'h';
      here.write(what);
      EXPECT_TRUE(go.read(what));
      for (const SharedRecord& each : claim_all(guest)) claimed.write(each.place);
      claimed.write(uint32_t{kPlaces});  // It has claimed all free places.
    };
    const Child one(survive), two(survive);
    char what = 0;
    ASSERT_TRUE(here.read(what) && here.read(what));
    Child child([&] { EXPECT_EQ(claim_all(*guest_of(event).release()).size(), kPlaces - 1); });
    ASSERT_TRUE(child.is_ready());
    child.kill();
    go.write(std::array<char, 2>{});
    std::set<uint32_t> places;
    uint32_t place = 0;
    for (int ended = 0; ended < 2;) {
      ASSERT_TRUE(claimed.read(place));
      if (place == kPlaces) {
        ++ended;
      } else {
        ASSERT_TRUE(places.insert(place).second) << place << " was given twice";
      }
    }
    ASSERT_EQ(places.size(), kPlaces - 1);
  }
}

// Each process starts, records, waits, and gives up what others leave, until it is killed at some
// point of this.
TEST_F(SharedEventDeathTest, LosesNoPlaceWhereverProcessesAreKilled) {
  event.complete(record(event), BP_OK);
  std::mt19937 random(7);
  const auto begin = [&] {
    const pid_t pid = fork();
    while (pid == 0) work(event);
    return pid;
  };
  std::array<pid_t, 3> workers{begin(), begin(), begin()};
  for (int round = 0; round < 300; ++round) {
    usleep(static_cast<useconds_t>(random() % 3000));
    pid_t& victim = workers[random() % workers.size()];
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    int how = 0;
    ASSERT_EQ(waitpid(victim, &how, 0), victim);
    ASSERT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) << "it has failed before";
    victim = begin();
  }
  for (const pid_t worker : workers) {
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    ASSERT_EQ(waitpid(worker, nullptr, 0), worker);
  }
  EXPECT_EQ(free_count(event), kPlaces - 1);
}

// ---- Through the tables of a backend ------------------------------------------------------------

class SharedEventsDeathTest : public testing::Test {
 protected:
  SharedEventsDeathTest() {
    handle.struct_size = sizeof(handle);
    handle.struct_type = BP_STRUCT_EXTERNAL_HANDLE;
    EXPECT_EQ(process.events.export_event(&process, event, BP_EXTERNAL_OPAQUE_FD, &handle), BP_OK);
  }
  ~SharedEventsDeathTest() override { close(handle.fd); }

  // Runs in a child that is killed before the work that it recorded has completed.
  void record_in_child() const {
    auto& child = *new Process;
    bp_event* imported = nullptr;
    EXPECT_EQ(child.events.import_event(&child, child.device(), &handle, &imported), BP_OK);
    bp_stream* const stream = child.make_stream();
    child.hold(stream);
    EXPECT_EQ(child.record(imported, stream), BP_OK) << child.text;
  }

  Process process;
  bp_event* const event = process.make_event(BP_EVENT_EXPORTABLE);
  bp_external_handle handle{};
};

TEST_F(SharedEventsDeathTest, EndTheWaitsForAKilledProcessInAFailureThatSaysSo) {
  Child child([&] { record_in_child(); });
  ASSERT_TRUE(child.is_ready());
  bp_stream* const waiter = process.make_stream();
  ASSERT_EQ(process.streams.wait_event(&process, waiter, event), BP_OK);
  EXPECT_EQ(process.is_done(event), 0u);
  EXPECT_EQ(process.synchronize(event, kShortNs), BP_TIMEOUT);
  child.kill();
  EXPECT_EQ(process.settle(waiter), BP_ABORTED);
  EXPECT_EQ(process.failure_text(waiter),
            "the process that recorded the event ended before the recorded work did");
  EXPECT_EQ(process.is_done(event), 1u);
  EXPECT_EQ(process.synchronize(event), BP_ABORTED);
  EXPECT_EQ(process.text,
            "event.synchronize: the process that recorded the event ended before the recorded work "
            "did");
}

TEST_F(SharedEventsDeathTest, TakeRecordsAfterAThousandKilledProcesses) {
  for (int round = 0; round < 1000; ++round) {
    Child child([&] { record_in_child(); });
    ASSERT_TRUE(child.is_ready()) << round;
    if (round % 100 != 0) continue;
    bp_stream* const waiter = process.make_stream();
    ASSERT_EQ(process.streams.wait_event(&process, waiter, event), BP_OK);
    child.kill();
    ASSERT_EQ(process.settle(waiter), BP_ABORTED);
  }
  EXPECT_EQ(process.record(event, process.make_stream()), BP_OK) << process.text;
  EXPECT_EQ(process.synchronize(event), BP_OK);
}

}  // namespace
}  // namespace bp
